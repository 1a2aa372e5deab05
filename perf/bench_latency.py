#!/usr/bin/env python3
"""Question: how long is a row on its way, how long until its producer knows, and what does waiting
cost?

Rows are published one by one at a rate, linger 0, with the sidecar parked between them or spinning.

  arrival   publish to arrival at the sink, at 1,000, 10,000 and 100,000 rows/s
  ack       publish to acknowledgement as the producer sees it, who waits for acknowledgements between
            rows; and one row at a time, each after the last one's acknowledgement
  idle      CPU and context switches of a connected sidecar with nothing to do, with 1 and 8 producers

The baselines, in turn with ours, are bench_chain's: the same bytes by a bare write of the producer's
own ("write"), and handed by futex to a second process that writes them ("chain") or looks without
pause ("spin"); for acknowledgements with an answer that comes back the same way. Of idle: a process
that sleeps.

Guess made beforehand, for two quiet cores at 1,000 rows/s: arrival the bare chain's p50 + 5 us, p99 +
20; 6 % of a core, at 10,000 20 %; acknowledgement the chain's + 10 us. Idle 0 and 0.

  perf/bench_latency.py [--build DIR] [--quick] [--repeats N] [--only arrival|ack|idle] [--json FILE]
                        [--smoke]
"""
import functools
import subprocess
import sys
import time

import bench
from bench import Case, Column, Stack, cores, cpu_s, go, run_program, switches

ROW_BYTES = 105  # what a message of one trade has, as the released clients send it
# (scheme, idle) of the sidecar, and the bare chain that it is held against
WAYS = (("ws", "park", "chain"), ("wss", "park", "chain"), ("ws", "spin", "spin"))
LATENCIES = [Column("p50 us", "p50", 1e-3, ratio=True), Column("p99 us", "p99", 1e-3, ratio=True),
             Column("p99.9 us", "p999", 1e-3), Column("rows/s given", "rate", form="%.0f"),
             Column("cpu %", "busy", 100)]  # of the one between: the sidecar, the chain's second


def paced(bin_dir, tls, idle, sink, words, rows):
    """One producer through a sidecar; what it said, its share of a core, the sink's summary."""
    with Stack(bin_dir, tls, sidecar=["--idle", idle, "--linger", "0"], sink=sink) as stack:
        producer = stack.producer("--rows", rows, *words)
        with cores.at_full_speed():
            before, began = cpu_s(stack.sidecar.pid), time.monotonic()
            go(producer)
            done = stack.finish(producer)
            busy = (cpu_s(stack.sidecar.pid) - before) / (time.monotonic() - began)
        rate = rows / (done["published_ns"] - done["start_ns"]) * 1e9
        return done, {"busy": busy, "rate": rate}, stack.check_rows(rows)


def arrival(bin_dir, tls, idle, rate, rows):
    _, shares, summary = paced(bin_dir, tls, idle, ["--latency", "id"], ["--rate", rate], rows)
    if summary["latency_ns"]["count"] != rows:
        raise RuntimeError("%d rows without a time" % (rows - summary["latency_ns"]["count"]))
    return {**summary["latency_ns"], **shares, "wire_bytes": summary["wire_bytes"] / rows}


def ack(bin_dir, tls, idle, rate, rows):
    words = ["--rate", rate, "--acks"] if rate else ["--wait-acked"]
    done, shares, _ = paced(bin_dir, tls, idle, [], words, rows)
    if done["ack_ns"]["count"] != rows:
        raise RuntimeError("%d rows without a time" % (rows - done["ack_ns"]["count"]))
    return {**done["ack_ns"], **shares}


def rates(options):
    """(rate, rows): some seconds each."""
    if options.smoke:
        return ((10000, 1000),)
    seconds = 2 if options.quick else 8
    return tuple((rate, rate * seconds) for rate in (1000, 10000, 100000))


def chain_case(bin_dir, way, rate, rows, echo):
    words = ["--way", way, "--rate", rate, "--count", rows, "--bytes", ROW_BYTES]
    return Case("%d/s bare %s" % (rate, way),
                functools.partial(run_program, bin_dir, "bench_chain", *words, *echo),
                "%d/s bare %s" % (rate, way), {"rate": rate, "way": way, "bare": True})


def paced_cases(run, results, options, echo=()):
    cases = []
    for rate, rows in rates(options):
        for way in ("chain",) if options.smoke else ("write", "chain", "spin"):
            cases.append(chain_case(results.bin_dir, way, rate, rows, echo))
        for scheme, idle, base in WAYS[:1] if options.smoke else WAYS:
            cases.append(Case("%d/s %s %s" % (rate, scheme, idle),
                              functools.partial(run, results.bin_dir, scheme == "wss", idle, rate, rows),
                              "%d/s bare %s" % (rate, base),
                              {"rate": rate, "way": "%s %s" % (scheme, idle), "bare": False}))
    return cases


def bench_arrival(results, options):
    results.measure("arrival", "publish to arrival, one row each, linger 0",
                    paced_cases(arrival, results, options), options.repeats, LATENCIES)


def bench_ack(results, options):
    cases = paced_cases(ack, results, options, echo=("--echo",))
    rows = 100 if options.smoke else 5000
    words = ["--rate", 0, "--count", rows, "--bytes", ROW_BYTES, "--echo"]
    for way in ("chain",) if options.smoke else ("chain", "spin"):
        cases.append(Case("one at a time, bare %s" % way,
                          functools.partial(run_program, results.bin_dir, "bench_chain", "--way", way,
                                            *words), None, {"rate": 0, "way": way, "bare": True}))
    for scheme, idle, base in WAYS[1:2] if options.smoke else WAYS:
        cases.append(Case("one at a time, %s %s" % (scheme, idle),
                          functools.partial(ack, results.bin_dir, scheme == "wss", idle, 0, rows),
                          "one at a time, bare %s" % base,
                          {"rate": 0, "way": "%s %s" % (scheme, idle), "bare": False}))
    results.measure("ack", "publish to acknowledgement, one row each, linger 0", cases,
                    options.repeats, LATENCIES)


# ---- idle ----

def shares_of(pid, seconds):
    cpu, switched = cpu_s(pid), switches(pid)
    time.sleep(seconds)
    return {"core": (cpu_s(pid) - cpu) / seconds, "switches": (switches(pid) - switched) / seconds}


def idle(bin_dir, tls, producers, seconds):
    with Stack(bin_dir, tls) as stack:
        first = stack.producer("--rows", 10)
        go(first)
        stack.finish(first)
        waiting = stack.producers([["--name", "idle%d" % i, "--rows", 1] for i in range(producers)])
        time.sleep(2)  # spares are made, the last figures written
        out = shares_of(stack.sidecar.pid, seconds)
        for process in waiting:
            go(process)
            stack.finish(process)
        stack.check_rows(10 + producers)
        return out


def asleep(seconds):
    process = subprocess.Popen(["sleep", "300"])
    try:
        time.sleep(0.5)
        return shares_of(process.pid, seconds)
    finally:
        process.kill()
        process.wait()


def bench_idle(results, options):
    seconds = 1 if options.smoke else 5 if options.quick else 20
    cases = [Case("a process that sleeps", functools.partial(asleep, seconds), None, {"producers": 0})]
    for scheme in ("ws", "wss"):
        for producers in (1, 8):
            cases.append(Case("%s, %d producers" % (scheme, producers),
                              functools.partial(idle, results.bin_dir, scheme == "wss", producers, seconds),
                              "a process that sleeps", {"producers": producers, "scheme": scheme}))
    results.measure("idle", "%d s with nothing to do, connected" % seconds,
                    cases[:2] if options.smoke else cases,
                    1 if options.quick else min(options.repeats, 3),
                    [Column("% of a core", "core", 100, "%.3f"),
                     Column("switches/s", "switches", form="%.2f")])


PARTS = {"arrival": bench_arrival, "ack": bench_ack, "idle": bench_idle}


def main():
    options = bench.parse(bench.parser(__doc__, 5, PARTS))
    results = bench.Results("bench_latency", options)
    for name in options.only or PARTS:
        PARTS[name](results, options)
    return results.exit_code()


if __name__ == "__main__":
    sys.exit(main())
