#!/usr/bin/env python3
"""Question: what does a long line cost? The rate with 100 ms between sidecar and server, over the rate without
delay, for frames of 64 KiB.

Everything runs in a network namespace of its own, sidecar and qwp-sink on either side of a link: lo with netem,
or where the kernel has none perf/delay_link (a TUN device), which is then also the link without delay. Rates
are of rows taken by the server over some seconds, after a time to get going. Once with the kernel's bounds on socket
buffers as they are, and once with bounds that a line of 100 ms needs (tcp_rmem, tcp_wmem: what is in flight
lies in them). Guess made beforehand: 0.95 and more with these; without, what 4 MB of send buffer can keep in
flight, 40 MB/s.

  perf/bench_roundtrip.py [--build DIR] [--seconds N] [--repeats N] [--delay-ms N] [--rate N] [--smoke]

--rate N: rows a second that are offered (as many as go). Needs root, for the namespace; without that it exits
with 77.
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

import bench

LARGE = 256 * 1024 * 1024
WARM_UP_S = 3


def sysctl(name, value=None):
    path = "/proc/sys/net/ipv4/" + name
    if value is not None:
        with open(path, "w") as file:
            file.write(value)
    with open(path) as file:
        return file.read().split()


class Link:
    """What lies between the two; `address` is where to connect, `listen` where to listen."""

    def __init__(self, bin_dir, delay_ms, netem):
        self.process = None
        self.netem = netem
        if netem:
            self.address = self.listen = "127.0.0.1"
            if delay_ms > 0:
                # lo is passed in both directions.
                subprocess.run(["tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay",
                                "%dus" % (delay_ms * 500), "limit", "1000000"], check=True)
            return
        self.address, self.listen = "10.9.0.2", "10.9.0.1"
        self.process = subprocess.Popen([os.path.join(bin_dir, "delay_link"), "--delay-us", str(delay_ms * 500)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            out, _ = self.process.communicate(timeout=30)
            if not out.startswith("0 "):
                print("  the link: " + out.strip())
        else:
            subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], stderr=subprocess.DEVNULL)


class Stack(bench.Stack):
    def __init__(self, link, bin_dir, tls):
        self.link = link
        super().__init__(bin_dir, tls, sidecar=["--batch-bytes", "64k"])

    def start_sink(self, words):
        super().start_sink(["--listen", self.link.listen + ":0"])  # the last --listen counts
        self.conf = self.conf.replace("addr=127.0.0.1:", "addr=%s:" % self.link.address)
        # The certificate is for 127.0.0.1.
        if self.tls and self.link.address != "127.0.0.1":
            self.conf = self.conf.split("tls_roots")[0] + "tls_verify=unsafe_off;"


def rate(bin_dir, delay_ms, tls, options):
    """Rows and bytes a second, and the mean size of a message."""
    with Link(bin_dir, delay_ms, options.netem) as link, Stack(link, bin_dir, tls) as stack:
        words = ["--rate", options.rate] if options.rate else []
        producer = stack.producer("--name", "p0", "--rows", 10**12, *words)
        producer.stdin.write("\n")
        producer.stdin.flush()
        time.sleep(options.warm_up)
        before, start = stack.summary(), time.monotonic()
        time.sleep(options.seconds)
        after, end = stack.summary(), time.monotonic()
        producer.kill()
        if after["connections"] > 1:
            raise RuntimeError("the connection was lost: " + stack.log_text())
        rows, frames, size = (after[name] - before[name] for name in ("rows", "messages", "wire_bytes"))
        return rows / (end - start), size / (end - start), size / max(1, frames)


def compare(bin_dir, options, what):
    for tls in (False, True):
        ratios = []
        for _ in range(options.repeats):
            near = rate(bin_dir, 0, tls, options)
            far = rate(bin_dir, options.delay_ms, tls, options)
            ratios.append(far[0] / near[0] if near[0] else 0)
            print("  %-4s %-22s no delay %6.2f M rows/s %6.1f MB/s, %d ms %6.2f M rows/s %6.1f MB/s, "
                  "%5.1f KiB a message" % ("wss" if tls else "ws", what, near[0] / 1e6, near[1] / 1e6,
                                           options.delay_ms, far[0] / 1e6, far[1] / 1e6, far[2] / 1024), flush=True)
        print("  %-4s %-22s ratio %.2f (%s)" % ("wss" if tls else "ws", what, statistics.median(ratios),
                                                ", ".join("%.2f" % ratio for ratio in ratios)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser.add_argument("--build", default=os.path.join(root, "build"))
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--delay-ms", type=int, default=100)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if os.environ.get("QWP_ROUNDTRIP_INSIDE") != "1":
        inside = ["unshare", "-n", "true"]
        if os.geteuid() != 0 or subprocess.run(inside, capture_output=True).returncode != 0 \
                or not os.path.exists("/dev/net/tun"):
            print("skipped: a network namespace and /dev/net/tun need privilege")
            sys.exit(bench.SKIPPED)
        os.environ["QWP_ROUNDTRIP_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, "-B", *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    options.netem = subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us"],
                                   capture_output=True).returncode == 0
    if options.netem:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
    options.warm_up = WARM_UP_S
    if options.smoke:
        options.seconds, options.repeats, options.warm_up, options.rate = 0.5, 1, 0.5, 100000
    bin_dir = os.path.join(os.path.abspath(options.build), "bin")
    print("%s, %d processors, %s, %s" % (platform.release(), os.cpu_count(),
                                         "netem" if options.netem else "delay_link",
                                         "congestion control " + sysctl("tcp_congestion_control")[0]))
    print("buffers as they are: tcp_wmem %s, tcp_rmem %s" % (sysctl("tcp_wmem")[2], sysctl("tcp_rmem")[2]))
    compare(bin_dir, options, "buffers as they are")
    if options.smoke:
        return
    for name in ("tcp_rmem", "tcp_wmem"):
        low, initial, _ = sysctl(name)
        sysctl(name, "%s %s %d" % (low, initial, LARGE))
    compare(bin_dir, options, "buffers of 256 MiB")


if __name__ == "__main__":
    main()
