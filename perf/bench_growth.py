#!/usr/bin/env python3
"""Question: what gets slower when there is more of it?

Trade rows (6 columns) from load_producer through a sidecar into qwp-sink, with one thing growing, each
held against the smallest of the same run:

  tables     1 to 10,000, rows for all of them in turn: a frame of 10,000 rows then holds as many blocks
  symbols    10 to 1,000,000 in one column, each new at first, then known; in one dictionary as far as
             that goes, and with generations as they are by default
  producers  1 to 1,000 processes with a ring each that send the same number of rows together; and one
             beside 999 that are idle
  backlog    1 to 10 GiB in a store on disk, written while the server is away. The sidecar is killed and
             started again, then the server comes back: time to the first message, and the rate at which
             the backlog goes out, over all of it, in its first and in its last quarter

Guess made beforehand: rows/s of 1,000 producers within 20 % of one; of 1,000,000 known symbols within
30 % of 10; 1,000 tables, at 10 rows a block, a third; draining the same at any size.

  perf/bench_growth.py [--build DIR] [--quick] [--repeats N] [--disk DIR] [--json FILE] [--smoke]
                       [--only tables|symbols|producers|backlog]
"""
import functools
import os
import resource
import signal
import sys
import tempfile
import time

import bench
from bench import Case, Column, Stack, cpu_s, go

MIB = 1 << 20
GIB = 1 << 30
CHUNK_ROWS = 10000
CHUNK_ROW_BYTES = 20.3  # in the store
ONE_DICTIONARY = ("--generation-symbols", "900000", "--producer-symbols", "900000",
                  "--generation-bytes", "64m")
COLUMNS = [Column("M rows/s", "rows_per_s", 1e-6, "%.2f", ratio=True),
           Column("producer ns/row", "producer_ns", ratio=True),
           Column("sidecar ns/row", "sidecar_ns", ratio=True),
           Column("sink ns/row", "sink_ns"), Column("B/row", "wire_bytes")]


def through(bin_dir, rows, producers, words, sidecar=(), idle=0):
    """So many rows by all producers together; `idle` more are attached and say nothing."""
    with Stack(bin_dir, sidecar=sidecar) as stack:
        processes = stack.producers([["--name", "p%d" % i, "--rows",
                                      rows // producers if i < producers else 1, *words]
                                     for i in range(producers + idle)])
        running, waiting = processes[:producers], processes[producers:]
        total, seconds, producers_s, sidecar_s, sink_s = stack.run(running)
        summary = stack.check_rows(total)
        for process in waiting:
            process.kill()
        return {"rows_per_s": total / seconds,
                "producer_ns": producers_s * 1e9 / total,
                "sidecar_ns": sidecar_s * 1e9 / total,
                "sink_ns": sink_s * 1e9 / total,
                "wire_bytes": summary["wire_bytes"] / total}


def growing(what, sizes, run):
    """A case for each size; the first is the base."""
    name = "{:,} %s" % what
    return [Case(name.format(size), functools.partial(run, size), name.format(sizes[0]),
                 {"size": size}) for size in sizes]


def bench_tables(results, options):
    rows = 20000 if options.smoke else 1000000

    def run(tables):
        return through(results.bin_dir, rows, 1, ["--tables", tables, "--definition-bytes", 32 * MIB])

    sizes = (1, 10) if options.smoke else (1, 10, 100, 1000, 10000)
    results.measure("tables", "%d rows over tables in turn" % rows, growing("tables", sizes, run),
                    options.repeats, COLUMNS)


def bench_symbols(results, options):
    rows = 20000 if options.smoke else 2000000

    def run(symbols, sidecar=ONE_DICTIONARY):
        words = ["--symbols", symbols, "--definition-bytes", 64 * MIB]
        return through(results.bin_dir, rows, 1, words, sidecar)

    sizes = (10, 1000) if options.smoke else (10, 1000, 10000, 100000, 800000)
    cases = growing("symbols", sizes, run)
    if not options.smoke:
        cases.append(Case("1,000,000 symbols in generations", functools.partial(run, 1000000, ()),
                          cases[0].name, {"size": 1000000, "generations": True}))
    results.measure("symbols", "%d rows with symbols in turn" % rows, cases, options.repeats, COLUMNS)


def bench_producers(results, options):
    rows = 20000 if options.smoke else 4000000
    words = ["--ring-bytes", 256 << 10, "--definition-bytes", 64 << 10]

    def run(producers):
        return through(results.bin_dir, rows, producers, words)

    sizes = (1, 10) if options.smoke else (1, 10, 100, 1000)
    cases = growing("producers", sizes, run)
    idle = sizes[-1] - 1
    cases.append(Case("1 producer beside %d idle" % idle,
                      functools.partial(through, results.bin_dir, rows, 1, words, (), idle),
                      cases[0].name, {"size": sizes[-1], "idle": True}))
    results.measure("producers", "%d rows of all producers together" % rows, cases, options.repeats,
                    COLUMNS)


# ---- backlog ----

def fill(stack, rows):
    """Writes while the server is away; the producer, which waits for acknowledgements."""
    stack.start_sidecar((), up=False)
    producer = stack.producer("--rows", rows, "--way", "chunk", "--unit", CHUNK_ROWS, "--ring-bytes",
                              8 * MIB)
    began = time.monotonic()
    go(producer)

    def stored():
        time.sleep(0.1)
        return stack.status().get("rows_stored", 0) == rows

    bench.wait_until(stored, "%d rows are in the store" % rows)
    return producer, time.monotonic() - began


def drain(stack, rows):
    """(seconds, rows arrived) from the first message to the last row."""
    seen = []
    began = time.monotonic()
    while not seen or seen[-1][1] < rows:
        now, summary = time.monotonic(), stack.summary()
        if summary["messages"] > 0:
            seen.append((now, summary["rows"]))
        if now - began > bench.WAIT_S:
            raise RuntimeError("not drained: %s %s" % (summary, stack.status()))
        time.sleep(0.002 if not seen else 0.02)
    return seen


def rate_between(seen, low, high):
    """Rows a second while the count of arrived rows went from low to high."""
    inside = [point for point in seen if low <= point[1] <= high]
    if len(inside) < 2 or inside[-1][0] == inside[0][0]:
        return None
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def backlog(options, bin_dir, gib):
    rows = int(gib * GIB / CHUNK_ROW_BYTES) // CHUNK_ROWS * CHUNK_ROWS
    conf = "sf_dir=%s;sf_max_total_bytes=16g;reconnect_max_backoff_millis=100;"
    with tempfile.TemporaryDirectory(prefix="qwp-bench-", dir=options.disk) as disk, \
            Stack(bin_dir, with_sidecar=False, conf=conf % disk, sink=["--fault", "refuse"]) as stack:
        producer, filled_s = fill(stack, rows)
        size = stack.status()["bytes_waiting"]
        stack.sidecar.send_signal(signal.SIGKILL)
        stack.sidecar.wait()
        stack.sink_line("faults clear")
        began = time.monotonic()
        stack.start_sidecar((), up=False)
        seen = drain(stack, rows)
        cpu = cpu_s(stack.sidecar.pid)
        stack.finish(producer)
        stack.check_rows(rows)
        return {"gib": size / GIB, "fill_per_s": rows / filled_s, "first_s": seen[0][0] - began,
                "rows_per_s": rate_between(seen, 0, rows),
                "first_quarter": rate_between(seen, 0, rows // 4),
                "last_quarter": rate_between(seen, rows - rows // 4, rows),
                "sidecar_ns": cpu * 1e9 / rows}


def bench_backlog(results, options):
    sizes = (0.02, 0.05) if options.smoke else (0.25, 1, 2) if options.quick else (1, 2, 5, 10)
    results.measure("backlog", "a backlog in a store on %s" % bench.file_system(options.disk),
                    growing("GiB", sizes, functools.partial(backlog, options, results.bin_dir)),
                    1 if options.smoke else min(options.repeats, 3),
                    [Column("M rows/s", "rows_per_s", 1e-6, "%.2f", ratio=True),
                     Column("first quarter", "first_quarter", 1e-6, "%.2f"),
                     Column("last quarter", "last_quarter", 1e-6, "%.2f"),
                     Column("sidecar ns/row", "sidecar_ns", ratio=True),
                     Column("first message s", "first_s", form="%.2f"),
                     Column("filling M rows/s", "fill_per_s", 1e-6, "%.2f"),
                     Column("GiB", "gib", form="%.2f")])


PARTS = {"tables": bench_tables, "symbols": bench_symbols, "producers": bench_producers,
         "backlog": bench_backlog}


def main():
    parser = bench.parser(__doc__, 3, PARTS)
    parser.add_argument("--disk", help="where a store on disk lies [the build directory]")
    options = bench.parse(parser)
    options.disk = options.disk or os.path.abspath(options.build)
    # Two pipes for each of a thousand producers.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    results = bench.Results("bench_growth", options)
    for name in options.only or PARTS:
        PARTS[name](results, options)
    return results.exit_code()


if __name__ == "__main__":
    sys.exit(main())
