#!/usr/bin/env python3
"""Question: what does the whole way cost, from a producer's row to a server that has it?

Producers (load_producer, through the public library), sidecar and qwp-sink are processes of this
machine. Rows are trades (6 columns), TSBS cpu-only (10 symbols, 10 small integers) or a symbol, 40
bytes of text and a number. Three parts:

  producer    ns a row for its producer while a sidecar runs, for bursts that fit the ring, at the
              moments when the core was fastest: published one by one, by 10 and by 1,000,
              over 1, 10 and 100 tables; beside a copy of finished records
  throughput  rows/s from the first row published to the last one acknowledged, CPU seconds per
              million rows of each process, bytes on the wire; 1 to 64 producers, store in memory, on
              tmpfs and on disk, plain and TLS; beside bench_ceiling, which sends trades encoded
              beforehand through the transport alone
  wire        bytes a row, in frames of 1 and of 1,000 rows and of as many as come; beside the same
              with --compact off

Guess made beforehand, for two quiet cores: 20 ns a trade published by itself and 60 a TSBS row; 15 M
rows/s with one producer, 0.06 CPU seconds per million rows for producer and sidecar; 24 bytes a
trade.

  perf/bench_e2e.py [--build DIR] [--quick] [--repeats N] [--only producer|throughput|wire]
                    [--disk DIR] [--json FILE] [--smoke]
"""
import functools
import os
import sys
import tempfile

import bench
from bench import Case, Column, Stack, cores, cpu_s, go, run_program

MIB = 1 << 20
RECORD_BYTES = {"trade": 64, "tsbs": 144, "text": 80}


# ---- producer ----

def step_words():
    """What a program that looks for the moments of a fast core is told."""
    return ["--step-ns", cores.fastest_ns] if cores.fastest_ns else []


def copies(bin_dir, rows, bytes_each):
    return run_program(bin_dir, "bench_producer", "--copy", bytes_each, "--rows", rows, *step_words())


def bursts(bin_dir, count, rows, words):
    """Bursts of so many rows, into a ring that holds one of them."""
    with Stack(bin_dir) as stack:
        process = stack.producer("--rows", count * rows, "--burst", rows, "--ring-bytes",
                                 max(MIB, rows * 320), *words, *step_words())
        go(process)
        done = stack.finish(process)
        stack.check_rows(count * rows)
        if done["full_waits"] > 0:
            raise RuntimeError("a burst did not fit the ring")
        cores.were_slow = done["bursts"] == 0
        return {"ns": done["burst_ns"], "bursts": done["bursts"]}


def producer_cases(bin_dir, options):
    rows, count = (2000, 2) if options.smoke else (10000, 400)
    cases = []
    for row in ("trade", "tsbs", "text"):
        base = "%s: copy of %d bytes" % (row, RECORD_BYTES[row])
        cases.append(Case(base, functools.partial(copies, bin_dir, rows, RECORD_BYTES[row])))
        for way in ("hot", "builder"):
            for unit in (1, 10, 1000):
                for tables in (1, 10, 100):
                    words = ["--row", row, "--way", way, "--unit", unit, "--tables", tables]
                    name = "%s, %s, by %s, %d tables" % (row, way, unit, tables)
                    cases.append(Case(name, functools.partial(bursts, bin_dir, count, rows, words), base,
                                      {"row": row, "way": way, "unit": unit, "tables": tables}))
    if options.smoke:
        return cases[:3]
    if options.quick:
        return [case for case in cases if case.dims.get("tables") != 10 and
                (case.dims.get("way") != "builder" or case.dims["unit"] == 1)]
    return cases


def bench_producer(results, options):
    results.measure("producer", "ns a row for its producer, sidecar running, bursts in the ring",
                    producer_cases(results.bin_dir, options), options.repeats,
                    [Column("ns a row", "ns", ratio=True), Column("bursts", "bursts", form="%.0f")])


# ---- throughput ----

def outcome(seconds, rows, producers_cpu, sidecar_cpu, sink_cpu, summary):
    millions = rows / 1e6
    return {"rows_per_s": rows / seconds, "producer_cpu": producers_cpu / millions,
            "sidecar_cpu": sidecar_cpu / millions,
            "cpu": (producers_cpu + sidecar_cpu) / millions, "sink_cpu": sink_cpu / millions,
            "wire_bytes": summary["wire_bytes"] / rows,
            "rows_a_message": rows / max(1, summary["messages"])}


def throughput(options, bin_dir, tls, store, producers, rows, words):
    with tempfile.TemporaryDirectory(prefix="qwp-bench-", dir=options.disk) as disk:
        conf = {"memory": "", "tmpfs": "sf_dir={dir}/store;", "disk": "sf_dir=%s;" % disk}[store]
        with Stack(bin_dir, tls, conf=conf) as stack:
            running = stack.producers([["--name", "p%d" % i, "--rows", rows // producers, *words]
                                       for i in range(producers)])
            total, seconds, *cpu = stack.run(running)
            return outcome(seconds, total, *cpu, stack.check_rows(total))


def ceiling(bin_dir, tls, rows):
    with Stack(bin_dir, tls, with_sidecar=False) as stack:
        before = cpu_s(stack.sink.pid)
        out = run_program(bin_dir, "bench_ceiling", "--conf", stack.conf, "--messages",
                          max(1, rows // 1000))
        return outcome(out["seconds"], out["rows"], 0.0, out["cpu_s"], cpu_s(stack.sink.pid) - before,
                       stack.check_rows(out["rows"]))


def throughput_cases(bin_dir, options):
    rows = 20000 if options.smoke else 4000000
    cases = []

    def add(scheme, store, producers, row="trade", note="hot", words=(), rows=rows):
        name = "%s %s %d x %s %s" % (scheme, store, producers, row, note)
        run = functools.partial(throughput, options, bin_dir, scheme == "wss", store, producers, rows,
                                ["--row", row, *words])
        cases.append(Case(name, run, scheme + " ceiling",
                          {"scheme": scheme, "store": store, "producers": producers, "row": row,
                           "way": note}))

    for scheme in ("ws", "wss"):
        cases.append(Case(scheme + " ceiling", functools.partial(ceiling, bin_dir, scheme == "wss", rows),
                          None, {"scheme": scheme}))
        for store in ("memory", "tmpfs", "disk"):
            some = (1, 64) if options.quick and (store != "memory" or scheme == "wss") else (1, 2, 8, 64)
            for producers in some:
                add(scheme, store, producers)
        add(scheme, "memory", 1, note="units of 100", words=["--unit", 100])
        add(scheme, "memory", 1, note="builder", words=["--way", "builder"])
        add(scheme, "memory", 1, note="chunks of 10000",
            words=["--way", "chunk", "--unit", 10000, "--ring-bytes", 8 * MIB], rows=5 * rows)
        add(scheme, "memory", 1, row="tsbs")
        add(scheme, "memory", 1, row="text")
    if options.smoke:
        return [case for case in cases if case.name in (
            "ws ceiling", "wss disk 64 x trade hot", "ws memory 1 x trade chunks of 10000",
            "ws tmpfs 1 x trade hot", "ws memory 1 x text hot")]
    return cases


def bench_throughput(results, options):
    results.measure(
        "throughput", "rows/s and CPU seconds per million rows; disk is %s" %
        bench.file_system(options.disk), throughput_cases(results.bin_dir, options), options.repeats,
        [Column("M rows/s", "rows_per_s", 1e-6, "%.2f", ratio=True),
         Column("producer cpu", "producer_cpu", form="%.3f"),
         Column("sidecar cpu", "sidecar_cpu", form="%.3f"), Column("both", "cpu", form="%.3f"),
         Column("sink cpu", "sink_cpu", form="%.3f"), Column("B/row", "wire_bytes"),
         Column("rows/message", "rows_a_message", form="%.0f")])


# ---- bytes on the wire ----

def wire(bin_dir, row, unit, compact, rows):
    """Of the second producer: symbols and tables are known then."""
    waiting = ["--linger", "0"] if unit else []
    with Stack(bin_dir, sidecar=["--compact", compact, *waiting]) as stack:
        words = ["--rows", rows, "--row", row, *(["--unit", unit, "--wait-acked"] if unit else [])]
        summaries = []
        for _ in range(2):
            process = stack.producer(*words)
            go(process)
            stack.finish(process)
            summaries.append(stack.summary())
        new = {key: summaries[1][key] - summaries[0][key] for key in ("rows", "messages", "wire_bytes")}
        if new["rows"] != rows or summaries[1]["errors"] != 0:
            raise RuntimeError("sent %d rows: %s" % (rows, summaries))
        if unit and new["messages"] != rows // unit:
            raise RuntimeError("%d messages of %d rows" % (new["messages"], unit))
        return {"wire_bytes": new["wire_bytes"] / rows, "rows_a_message": rows / new["messages"]}


def wire_cases(bin_dir, options):
    cases = []
    for row in ("trade", "tsbs", "text"):
        for unit in (1, 1000, 0):
            rows = (20 if options.smoke else 500) * unit if unit else 100000
            size = "frames of %d" % unit if unit else "as they come"
            base = "%s, %s, compact off" % (row, size)
            for compact, name in (("off", base), ("on", "%s, %s" % (row, size))):
                cases.append(Case(name, functools.partial(wire, bin_dir, row, unit, compact, rows), base,
                                  {"row": row, "unit": unit, "compact": compact}))
    return cases[:4] if options.smoke else cases


def bench_wire(results, options):
    # The same bytes each time, but for frames as they come.
    results.measure("wire", "bytes on the wire a row, symbols and tables known",
                    wire_cases(results.bin_dir, options), min(options.repeats, 3),
                    [Column("B/row", "wire_bytes", ratio=True),
                     Column("rows/message", "rows_a_message", form="%.0f")])


PARTS = {"producer": bench_producer, "throughput": bench_throughput, "wire": bench_wire}


def main():
    parser = bench.parser(__doc__, 5, PARTS)
    parser.add_argument("--disk", help="where a store on disk lies [the build directory]")
    options = bench.parse(parser)
    options.disk = options.disk or os.path.abspath(options.build)
    results = bench.Results("bench_e2e", options)
    for name in options.only or PARTS:
        PARTS[name](results, options)
    return results.exit_code()


if __name__ == "__main__":
    sys.exit(main())
