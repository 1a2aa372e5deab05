#!/usr/bin/env python3
"""Question: what does the whole way cost, from a producer's row to a server that has it?

Producers (load_producer: trade rows of 6 columns through the public library), sidecar and qwp-sink
are processes of this machine. Three tables:

  throughput   rows/s from the first row published to the last one acknowledged, CPU seconds per
               million rows of each process, bytes on the wire; beside bench_ceiling, which sends the
               same rows encoded beforehand through the transport alone
  arrival      publish to arrival of single rows at a rate, linger 0, beside bench_chain: the same
               bytes by a bare write, and by the bare chain of futex wake and write
  ack          publish to acknowledgement, one row at a time

Each repeat runs every case once, ours and the baselines in turn; shown are medians, and the span
between the lowest and the highest. Guess made beforehand, for two quiet cores: 15 M rows/s with one
producer, 0.06 CPU seconds per million rows for producer and sidecar, arrival at the bare chain's
p50 + 5 us.

  perf/bench_e2e.py [--build DIR] [--smoke] [--repeats N] [--only throughput|arrival|ack] [--json FILE]
"""
import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

WAIT_S = 300


def cpu_s(pid):
    """CPU seconds of all threads; the scheduler's own count where there is one."""
    total = 0
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, task)) as file:
                total += int(file.read().split()[0]) / 1e9
        return total
    except FileNotFoundError:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(condition, what):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("not within %d s: %s" % (WAIT_S, what))
        time.sleep(0.01)


class Stack:
    """A sink and a sidecar; ends both and removes their directory, whatever happens."""

    def __init__(self, bin_dir, tls, sidecar=(), sink=(), with_sidecar=True):
        self.bin_dir = bin_dir
        self.tls = tls
        self.directory = tempfile.mkdtemp(prefix="qwp-bench-", dir="/dev/shm")
        self.rings = os.path.join(self.directory, "rings")
        self.log = open(os.path.join(self.directory, "log"), "w+")
        self.processes = []
        try:
            self.start_sink(sink)
            if with_sidecar:
                self.start_sidecar(sidecar)
        except BaseException:
            self.close()
            raise

    def start(self, *words, **options):
        words = [os.path.join(self.bin_dir, words[0]), *map(str, words[1:])]
        process = subprocess.Popen(words, stderr=self.log, text=True, **options)
        self.processes.append(process)
        return process

    def start_sink(self, words):
        port_file = os.path.join(self.directory, "port")
        tls = ["--tls-self-signed", self.directory] if self.tls else []
        self.sink = self.start("qwp-sink", "--listen", "127.0.0.1:0", "--port-file", port_file, *tls,
                               *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        wait_until(lambda: os.path.exists(port_file) and os.path.getsize(port_file) > 0,
                   "the sink listens")
        with open(port_file) as file:
            port = int(file.read())
        roots = "tls_roots=%s/ca.pem;" % self.directory if self.tls else ""
        self.conf = "%s::addr=127.0.0.1:%d;%s" % ("wss" if self.tls else "ws", port, roots)

    def start_sidecar(self, words):
        self.sidecar = self.start("qwp-sidecar", "run", "--conf", self.conf, "--rings", self.rings,
                                  "--log-level", "warn", *words)
        wait_until(lambda: self.status().get("connection") == "up", "the sidecar is connected")

    def status(self):
        out = subprocess.run([os.path.join(self.bin_dir, "qwp-sidecar"), "status", "--rings",
                              self.rings, "--json"], capture_output=True, text=True)
        return json.loads(out.stdout) if out.stdout else {}

    def producer(self, *words):
        process = self.start("load_producer", "--rings", self.rings, *words,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("a producer did not start: " + self.log_text())
        return process

    def summary(self):
        self.sink.stdin.write("summary\n")
        self.sink.stdin.flush()
        return json.loads(self.sink.stdout.readline())

    def log_text(self):
        with open(self.log.name) as file:
            return file.read()[-2000:]

    def close(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def finish(stack, process):
    line = process.stdout.readline()
    if process.wait(WAIT_S) != 0 or not line:
        raise RuntimeError("a producer failed: " + stack.log_text())
    return json.loads(line)


def run_program(bin_dir, *words):
    out = subprocess.run([os.path.join(bin_dir, words[0]), *map(str, words[1:])], check=True,
                         capture_output=True, text=True)
    return json.loads(out.stdout)


# ---- throughput ----

def throughput_case(bin_dir, tls, producers, rows, words):
    with Stack(bin_dir, tls) as stack:
        running = [stack.producer("--name", "p%d" % i, "--rows", rows // producers, *words)
                   for i in range(producers)]
        before = {name: cpu_s(process.pid) for name, process in
                  (("sidecar", stack.sidecar), ("sink", stack.sink))}
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        done = [finish(stack, process) for process in running]
        after = {name: cpu_s(getattr(stack, name).pid) for name in before}
        summary = stack.summary()
        total = sum(each["rows"] for each in done)
        if summary["rows"] != total or summary["errors"] != 0:
            raise RuntimeError("sent %d rows: %s" % (total, summary))
        seconds = (max(each["acked_ns"] for each in done) -
                   min(each["start_ns"] for each in done)) / 1e9
        millions = total / 1e6
        return {
            "rows_per_s": total / seconds,
            "producer_cpu": sum(each["cpu_s"] for each in done) / millions,
            "sidecar_cpu": (after["sidecar"] - before["sidecar"]) / millions,
            "sink_cpu": (after["sink"] - before["sink"]) / millions,
            "wire_bytes": summary["wire_bytes"] / total,
            "rows_a_message": total / max(1, summary["messages"]),
        }


def ceiling_case(bin_dir, tls, rows):
    with Stack(bin_dir, tls, with_sidecar=False) as stack:
        before = cpu_s(stack.sink.pid)
        out = run_program(bin_dir, "bench_ceiling", "--conf", stack.conf, "--messages",
                          max(1, rows // 1000))
        millions = out["rows"] / 1e6
        return {
            "rows_per_s": out["rows_per_s"],
            "producer_cpu": 0.0,
            "sidecar_cpu": out["cpu_s"] / millions,
            "sink_cpu": (cpu_s(stack.sink.pid) - before) / millions,
            "wire_bytes": stack.summary()["wire_bytes"] / out["rows"],
            "rows_a_message": 1000,
        }


def throughput_cases(smoke):
    # name, TLS, producers (0: the ceiling), arguments
    cases = []
    for scheme in ("ws", "wss"):
        cases.append((scheme + " ceiling", scheme == "wss", 0, []))
        for producers in (1, 2, 8):
            cases.append(("%s %d x hot" % (scheme, producers), scheme == "wss", producers, []))
        cases.append((scheme + " 1 x hot, units of 100", scheme == "wss", 1, ["--unit", "100"]))
        cases.append((scheme + " 1 x builder", scheme == "wss", 1, ["--way", "builder"]))
        cases.append((scheme + " 1 x chunks of 10000", scheme == "wss", 1,
                      ["--way", "chunk", "--unit", "10000", "--ring-bytes", str(8 << 20)]))
    return cases[:2] + cases[6:8] if smoke else cases


def bench_throughput(bin_dir, repeats, smoke):
    rows = 20000 if smoke else 4000000
    cases = throughput_cases(smoke)
    results = {name: [] for name, *_ in cases}
    for _ in range(repeats):
        for name, tls, producers, words in cases:
            results[name].append(ceiling_case(bin_dir, tls, rows) if producers == 0 else
                                 throughput_case(bin_dir, tls, producers, rows, words))
    print("\nthroughput: %d trade rows a run, store in memory mode; ceiling: the same rows encoded"
          " beforehand" % rows)
    print("%-26s %8s %15s %8s | %8s %8s %8s %8s | %6s %7s" % (
        "case", "M rows/s", "span", "ceiling", "producer", "sidecar", "both", "sink", "B/row",
        "rows/msg"))
    print("%26s %33s | %s" % ("", "", "CPU seconds per million rows"))
    for name, runs in results.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        rates = sorted(run["rows_per_s"] / 1e6 for run in runs)
        ceiling = statistics.median(
            run["rows_per_s"] for run in results[name.split()[0] + " ceiling"]) \
            if name.split()[0] + " ceiling" in results else float("nan")
        print("%-26s %8.2f %15s %7.0f%% | %8.3f %8.3f %8.3f %8.3f | %6.1f %7.0f" % (
            name, middle["rows_per_s"] / 1e6, "%.2f-%.2f" % (rates[0], rates[-1]),
            100 * middle["rows_per_s"] / ceiling, middle["producer_cpu"], middle["sidecar_cpu"],
            middle["producer_cpu"] + middle["sidecar_cpu"], middle["sink_cpu"],
            middle["wire_bytes"], middle["rows_a_message"]))
    return results


# ---- latency ----

def arrival_case(bin_dir, tls, idle, rate, count):
    with Stack(bin_dir, tls, sidecar=["--idle", idle, "--linger", "0"],
               sink=["--latency", "id"]) as stack:
        producer = stack.producer("--rate", rate, "--rows", count)
        before = cpu_s(stack.sidecar.pid)
        began = time.monotonic()
        producer.stdin.write("\n")
        producer.stdin.flush()
        finish(stack, producer)
        busy = (cpu_s(stack.sidecar.pid) - before) / (time.monotonic() - began)
        summary = stack.summary()
        if summary["rows"] != count or summary["latency_ns"]["count"] != count:
            raise RuntimeError("sent %d rows: %s" % (count, summary))
        return {**summary["latency_ns"], "busy": busy, "wire_bytes": summary["wire_bytes"] / count}


def ack_case(bin_dir, tls, idle, count):
    with Stack(bin_dir, tls, sidecar=["--idle", idle, "--linger", "0"]) as stack:
        producer = stack.producer("--wait-acked", "--rows", count)
        before = cpu_s(stack.sidecar.pid)
        began = time.monotonic()
        producer.stdin.write("\n")
        producer.stdin.flush()
        done = finish(stack, producer)
        busy = (cpu_s(stack.sidecar.pid) - before) / (time.monotonic() - began)
        return {**done["ack_ns"], "busy": busy}


def print_latencies(title, results, base_of):
    print("\n" + title)
    print("%-26s %9s %9s %9s | %9s %9s | %9s" % ("case", "p50 us", "p99 us", "p99.9 us", "p50 x",
                                                "p99 x", "sidecar"))
    for name, runs in results.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in
                  ("p50", "p99", "p999")}
        base = results.get(base_of(name), runs)
        ratios = [middle[key] / max(1, statistics.median(run[key] for run in base))
                  for key in ("p50", "p99")]
        busy = "%8.1f%%" % (100 * statistics.median(run["busy"] for run in runs)) \
            if "busy" in runs[0] else ""
        print("%-26s %9.1f %9.1f %9.1f | %9.2f %9.2f | %9s" % (
            name, middle["p50"] / 1e3, middle["p99"] / 1e3, middle["p999"] / 1e3, *ratios, busy))


def bench_arrival(bin_dir, repeats, smoke):
    results = {}
    rates = [(1000, 200)] if smoke else [(1000, 5000), (10000, 50000)]
    for _ in range(repeats):
        for rate, count in rates:
            for way in ("write", "chain"):
                results.setdefault("%d/s bare %s" % (rate, way), []).append(
                    run_program(bin_dir, "bench_chain", "--way", way, "--rate", rate, "--count",
                                count, "--bytes", 105))
            for scheme, idle in (("ws", "park"), ("wss", "park"), ("ws", "spin")):
                results.setdefault("%d/s %s %s" % (rate, scheme, idle), []).append(
                    arrival_case(bin_dir, scheme == "wss", idle, rate, count))
    print_latencies("publish to arrival, one row each, linger 0; x: of the bare chain at that rate",
                    results, lambda name: name.split()[0] + " bare chain")
    return results


def bench_ack(bin_dir, repeats, smoke):
    results = {}
    for _ in range(repeats):
        for scheme, idle in (("ws", "park"), ("wss", "park"), ("ws", "spin")):
            results.setdefault("%s %s" % (scheme, idle), []).append(
                ack_case(bin_dir, scheme == "wss", idle, 100 if smoke else 5000))
    print_latencies("publish to acknowledgement, one row at a time, linger 0; x: of ws park", results,
                    lambda name: "ws park")
    return results


BENCHES = {"throughput": bench_throughput, "arrival": bench_arrival, "ack": bench_ack}


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(root, "build"))
    parser.add_argument("--smoke", action="store_true", help="so short that figures mean nothing")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=BENCHES, action="append")
    parser.add_argument("--json", help="write all runs there")
    options = parser.parse_args()
    bin_dir = os.path.join(os.path.abspath(options.build), "bin")
    repeats = 1 if options.smoke else options.repeats
    print("%s %s %s, %d cpus, load %.1f, %d repeats, rings and store on tmpfs" % (
        platform.system(), platform.release(), platform.machine(), os.cpu_count(),
        os.getloadavg()[0], repeats))
    results = {}
    for name in options.only or BENCHES:
        results[name] = BENCHES[name](bin_dir, repeats, options.smoke)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
