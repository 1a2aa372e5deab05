#!/usr/bin/env python3
"""Question: how fast does a TSBS load go, and how much of that is the client, how much the transport?

A loader for the data of the Time Series Benchmark Suite: text as its QuestDB generator writes it (line
protocol) or QWPB, read by N processes of qwp-feed and carried by the sidecar into qwp-sink or, --conf,
into a real server. Files may be packed with gzip; without --file it is the cpu-only data of the tests.

  load       from the first byte read to the point that --ack names: `published`, all rows are in rings;
             `stored`, all left the rings for the store; `acked`, the server has acknowledged all
             (default); `durable`, it has also replicated them
  preencode  first everything is read, encoded and stored while no server is there; then only the
             sending is timed, from the connection to the last acknowledgement: what the transport can
             do. Its client figures are those of the first step. --preencode: this alone
  parse      the loader alone, which reads and throws the rows away (qwp-feed --dry-run)

Rows a second, CPU nanoseconds a row of feed and sidecar, bytes a row on the wire. The baseline is the
first file with one process and the store in memory.

Guess made beforehand, for two quiet cores: 3 M rows/s from QWPB with one process, 1.5 M from text;
sending alone 5 M; a store on disk within 10 % of one in memory (the CRC over the payload, 0.1 ns a byte).

  perf/bench_tsbs.py [--build DIR] [--quick] [--repeats N] [--file FILE]... [--processes N]...
                     [--ack published|stored|acked|durable] [--preencode] [--times N] [--conf STRING]
                     [--disk DIR] [--json FILE] [--smoke]

--times N reads the data N times (100). A real server keeps the rows: drop the tables between runs.
"""
import functools
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import bench
from bench import Case, Column, Stack, cores, cpu_s

DATA = os.path.join(bench.ROOT, "tests", "data")
DEFAULT_FILES = ["tsbs-cpu-only.ilp.gz", "tsbs-cpu-only.qwpb.gz"]
NO_SERVER = "ws::addr=127.0.0.1:1;reconnect_max_backoff_millis=1000;close_flush_timeout_millis=0;"
STORES = {"memory": "", "tmpfs": "sf_dir={dir}/store;", "disk": "sf_dir=%s;",
          "disk, periodic": "sf_dir=%s;sf_durability=periodic;"}
COLUMNS = [Column("M rows/s", "rows_per_s", 1e-6, "%.2f", ratio=True),
           Column("feed ns/row", "feed_ns", ratio=True),
           Column("sidecar ns/row", "sidecar_ns", ratio=True), Column("B/row on the wire", "wire_bytes"),
           Column("B/row in the file", "file_bytes")]


class Data:
    """A file to load, unpacked."""

    def __init__(self, path, directory):
        self.name = os.path.basename(path).removesuffix(".gz")
        self.path = os.path.join(directory, self.name)
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rb") as packed, open(self.path, "wb") as plain:
            shutil.copyfileobj(packed, plain)
        with open(self.path, "rb") as file:
            self.format = "qwpb" if file.read(4) == b"QWPB" else "ilp"
        self.bytes = os.path.getsize(self.path)


def feed(bin_dir, data, times, *words):
    """What qwp-feed says, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([os.path.join(bin_dir, "qwp-feed"), "--format", data.format, "--repeat",
                           str(times), "--json", *map(str, words), data.path], capture_output=True,
                          text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError("qwp-feed: " + done.stderr[-500:])
    told = json.loads(done.stdout)
    return told, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def wait_counter(stack, counter, rows):
    def reached():
        time.sleep(0.01)
        return stack.status().get(counter, 0) >= rows

    bench.wait_until(reached, "%s is %d" % (counter, rows))


def sink_bytes(stack, rows):
    """Bytes a row that the sink counted; a real server does not tell."""
    return stack.check_rows(rows)["wire_bytes"] / rows if hasattr(stack, "sink") else None


class Loader:
    def __init__(self, results, options, disk):
        self.bin_dir, self.options, self.disk = results.bin_dir, options, disk

    def stack(self, store, conf="", **others):
        conf += STORES[store] % tempfile.mkdtemp(dir=self.disk) if "%s" in STORES[store] \
            else STORES[store]
        sink = ["--durable"] if self.options.ack == "durable" else []
        return Stack(self.bin_dir, conf=conf, sink=sink, server=self.options.conf, **others)

    def feed_words(self, stack, processes):
        return ["--rings", stack.rings, "--processes", processes, "--ring-bytes", "8m"]

    def load(self, data, processes, store):
        ack, times = self.options.ack, self.options.times
        conf = "request_durable_ack=on;" if ack == "durable" else ""
        with self.stack(store, conf) as stack, cores.at_full_speed():
            before, began = cpu_s(stack.sidecar.pid), time.monotonic()
            words = self.feed_words(stack, processes) + \
                (["--no-wait"] if ack in ("published", "stored") else [])
            told, feed_cpu = feed(self.bin_dir, data, times, *words)
            rows, seconds = told["rows_sent"], told["seconds"]
            if ack == "stored":
                wait_counter(stack, "rows_stored", rows)
                seconds = time.monotonic() - began
            wait_counter(stack, "rows_acked", rows)
            return self.figures(data, rows, seconds, feed_cpu, cpu_s(stack.sidecar.pid) - before,
                                sink_bytes(stack, rows))

    def preencode(self, data, processes, store):
        with self.stack(store, "sf_max_total_bytes=16g;", with_sidecar=False) as stack:
            conf = stack.conf
            stack.conf = NO_SERVER + conf.split(";", 1)[1]
            stack.start_sidecar((), up=False)
            bench.wait_until(lambda: stack.status().get("live"), "the sidecar runs", bench.START_S)
            told, feed_cpu = feed(self.bin_dir, data, self.options.times,
                                  *self.feed_words(stack, processes), "--no-wait")
            rows = told["rows_sent"]
            wait_counter(stack, "rows_stored", rows)
            stack.stop(stack.sidecar)
            stack.conf = conf
            with cores.at_full_speed():
                stack.start_sidecar(())
                wait_counter(stack, "frames_acked", 1)
                bench.wait_until(lambda: stack.status().get("bytes_waiting") == 0,
                                 "all is acknowledged")
            # The clock of the status and ours are one.
            seconds = time.time() - stack.status()["connection_since_us"] / 1e6
            return self.figures(data, rows, seconds, feed_cpu, cpu_s(stack.sidecar.pid),
                                sink_bytes(stack, rows))

    def parse(self, data, processes):
        with cores.at_full_speed():
            told, cpu = feed(self.bin_dir, data, self.options.times, "--processes", processes,
                             "--dry-run")
        return self.figures(data, told["rows_sent"], told["seconds"], cpu, None, None)

    def figures(self, data, rows, seconds, feed_cpu, sidecar_cpu, wire_bytes):
        out = {"rows_per_s": rows / seconds, "feed_ns": feed_cpu * 1e9 / rows,
               "file_bytes": data.bytes * self.options.times / rows}
        if sidecar_cpu is not None:
            out["sidecar_ns"] = sidecar_cpu * 1e9 / rows
        if wire_bytes is not None:
            out["wire_bytes"] = wire_bytes
        return out

    def cases(self, files):
        base = "load %s, 1 process" % files[0].name
        cases = []

        def add(what, data, processes, run, store="memory"):
            name = "%s %s, %d process%s%s" % (what, data.name, processes, "es"[:2 * (processes > 1)],
                                              "" if store == "memory" else ", store on " + store)
            cases.append(Case(name, run, base, {"what": what, "file": data.name, "store": store,
                                                "processes": processes}))

        for data in files:
            for processes in self.options.processes:
                if not self.options.preencode:
                    add("load", data, processes, functools.partial(self.load, data, processes, "memory"))
                    add("parse", data, processes, functools.partial(self.parse, data, processes))
                add("preencode", data, processes,
                    functools.partial(self.preencode, data, processes, "memory"))
        if not self.options.preencode:
            for store in list(STORES)[1:]:
                add("load", files[-1], 1, functools.partial(self.load, files[-1], 1, store), store)
        return cases


def main():
    parser = bench.parser(__doc__, 5)
    parser.add_argument("--file", action="append", help="data to load")
    parser.add_argument("--processes", type=int, action="append", help="how many that read [1 and 2]")
    parser.add_argument("--ack", choices=("published", "stored", "acked", "durable"), default="acked")
    parser.add_argument("--preencode", action="store_true", help="only time the sending")
    parser.add_argument("--times", type=int, default=100, help="how often the data is read")
    parser.add_argument("--conf", help="connect string of a real server")
    parser.add_argument("--disk", help="where a store on disk lies [the build directory]")
    options = bench.parse(parser)
    options.processes = options.processes or [1, 2]
    options.times = 1 if options.smoke else options.times
    paths = options.file or [os.path.join(DATA, name) for name in DEFAULT_FILES]
    disk = options.disk or os.path.abspath(options.build)
    results = bench.Results("bench_tsbs", options)
    with tempfile.TemporaryDirectory(prefix="qwp-bench-", dir="/dev/shm") as memory, \
            tempfile.TemporaryDirectory(prefix="qwp-bench-", dir=disk) as disk:
        cases = Loader(results, options, disk).cases([Data(path, memory) for path in paths])
        if options.smoke:
            cases = cases[2:3] + cases[6:9]
        results.measure("tsbs", "TSBS data, acknowledgement policy: %s; disk is %s" % (
            options.ack, bench.file_system(disk)), cases, options.repeats, COLUMNS)
    return results.exit_code()


if __name__ == "__main__":
    sys.exit(main())
