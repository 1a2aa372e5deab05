#!/usr/bin/env python3
"""Question: how does the way through the sidecar compare with the released clients, each alone?

The same trade rows of 6 columns (2 symbols, 2 doubles, a long, a boolean, a time) go to the same
counting server (qwp-sink) from our producer library and sidecar, from the Rust client (crate
questdb-rs 7.2.1), from the Go client where a checkout of it is given, and, data frames, from the
Python client (questdb 6.0.0). Ours and the peers run in turn, every repeat all of them. Three parts:

  rows      ns a row until the client has the last one, of the thread that writes; rows/s from the
            first row to the last acknowledgement; CPU seconds per million rows of the client, and
            for ours of producer and sidecar together
  arrival   publish, or flush, to arrival of single rows at a rate; linger 0; beside bench_chain
  idle      a connected client that has nothing to do, for ours the sidecar with one producer

Guess made beforehand, for two quiet cores: publishing each row 30 x cheaper than the Rust client,
1,000 rows a batch 15 x, end to end 3 x, CPU a fifth; arrival 0.7 x; idle nothing.

  perf/compare.py [--build DIR] [--quick] [--repeats N] [--only rows|arrival|idle] [--work DIR]
                  [--go DIR] [--python PYTHON] [--json FILE] [--smoke]

--work keeps what is built of the peers (default: build/peers). --go: a checkout of the Go client,
github.com/questdb/go-questdb-client."""
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import time

import bench
import bench_latency
from bench import Case, Column, Stack, cores, cpu_s, go

HERE = os.path.dirname(os.path.abspath(__file__))
RING = 256 << 20  # the batches fit, so that what the producer pays is seen
# case -> (rows, rows a batch, tables); a batch is published, or flushed, by itself
CASES = {
    "each row, 1 table": (100000, 1, 1),
    "each row, 100 tables": (100000, 1, 100),
    "1,000 rows a batch": (2000000, 1000, 1),
    "columns, 10,000 rows each": (10000000, 10000, 1),
}
COLUMNAR = "columns, 10,000 rows each"
WAIT_S = 120


# ---- the peers ----

def last_line(run):
    return ((run.stderr or run.stdout).strip().splitlines() or ["failed"])[-1]


def run_in(directory, *words):
    return subprocess.run(words, cwd=directory, capture_output=True, text=True)


def build_rust(work):
    if shutil.which("cargo") is None:
        return None, "no cargo"
    target = os.path.join(work, "rust")
    built = run_in(os.path.join(HERE, "peers", "rust"), "cargo", "build", "--release", "--locked",
                   "--target-dir", target)
    if built.returncode != 0:
        return None, last_line(built)
    return [os.path.join(target, "release", "rust-peer")], "questdb-rs 7.2.1"


def build_go(work, checkout):
    """In a copy: go.mod has to name the checkout."""
    if checkout is None:
        return None, "no checkout given (--go)"
    if shutil.which("go") is None:
        return None, "no go"
    source = os.path.join(work, "go")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(os.path.join(HERE, "peers", "go"), source)
    steps = (["mod", "edit", "-replace",
              "github.com/questdb/go-questdb-client/v4=" + os.path.abspath(checkout)],
             ["mod", "tidy"], ["build", "-o", "go-peer", "."])
    for step in steps:
        done = run_in(source, "go", *step)
        if done.returncode != 0:
            return None, last_line(done)
    described = run_in(checkout, "git", "describe", "--tags", "--always").stdout.strip()
    return [os.path.join(source, "go-peer")], described or "a checkout"


def build_python(work, given):
    """A Python that has the client: the one given, or an environment made for it."""
    program = given or os.path.join(work, "python", "bin", "python")
    if given is None and not os.path.exists(program):
        made = run_in(None, sys.executable, "-m", "venv", os.path.join(work, "python"))
        made = made if made.returncode != 0 else run_in(
            None, program, "-m", "pip", "install", "--disable-pip-version-check", "questdb==6.0.0",
            "pyarrow", "pandas", "numpy")
        if made.returncode != 0:
            shutil.rmtree(os.path.join(work, "python"), ignore_errors=True)
            return None, last_line(made)
    return [program, "-B", os.path.join(HERE, "peers", "python_peer.py")], "questdb 6.0.0"


def build_peers(options):
    """Name -> command, of those that can be had; says what cannot."""
    if options.smoke:
        return {}
    work = os.path.abspath(options.work or os.path.join(options.build, "peers"))
    os.makedirs(work, exist_ok=True)
    made = {"rust": build_rust(work), "go": build_go(work, options.go),
            "python": build_python(work, options.python)}
    for name, (command, text) in made.items():
        print("%s: %s" % (name, text if command else "without it: " + text), flush=True)
    return {name: command for name, (command, _) in made.items() if command}


def peer_words(name, case, rows, unit, tables):
    """What a peer's program is told, or None where it has no such way."""
    if name == "python":
        return ["columns", rows, unit] if case == COLUMNAR else None
    if case == COLUMNAR:
        return ["chunks", rows, unit, tables] if name == "rust" else None
    return ["rows", rows, unit, tables]


def run_peer(stack, command, words):
    with cores.at_full_speed():
        run = subprocess.run([command[0], *command[1:], stack.conf, *map(str, words)],
                             capture_output=True, text=True, timeout=WAIT_S)
    if run.returncode != 0:
        raise RuntimeError("%s: %s" % (command, run.stderr[-500:]))
    return json.loads(run.stdout)


# ---- rows ----

def outcome(rows, given_s, acked_s, cpu, summary):
    return {"given_ns": given_s * 1e9 / rows, "rows_per_s": rows / acked_s,
            "cpu": cpu / (rows / 1e6), "wire_bytes": summary["wire_bytes"] / rows}


def ours(bin_dir, case, rows, unit, tables, ring):
    way = ["--way", "chunk"] if case == COLUMNAR else []
    with Stack(bin_dir) as stack:
        producer = stack.producer("--rows", rows, "--unit", unit, "--tables", tables, "--ring-bytes",
                                  ring, *way)
        with cores.at_full_speed():
            before = cpu_s(stack.sidecar.pid)
            go(producer)
            done = stack.finish(producer)
        cpu = done["cpu_s"] + cpu_s(stack.sidecar.pid) - before
        return outcome(rows, (done["published_ns"] - done["start_ns"]) / 1e9,
                       (done["acked_ns"] - done["start_ns"]) / 1e9, cpu, stack.check_rows(rows))


def peer(bin_dir, command, words, rows):
    with Stack(bin_dir, with_sidecar=False) as stack:
        done = run_peer(stack, command, words)
        return outcome(rows, done["given_s"], done["acked_s"], done["cpu_s"], stack.check_rows(rows))


def compare_rows(results, options, peers):
    cases = []
    for case, (rows, unit, tables) in CASES.items():
        rows = rows // 100 if options.smoke else rows
        ring = RING // 16 if options.smoke else RING
        unit = min(unit, rows)
        base = case + ": ours"
        dims = {"case": case, "client": "ours"}
        cases.append(Case(base, functools.partial(ours, results.bin_dir, case, rows, unit, tables, ring),
                          base, dims))
        for name, command in peers.items():
            words = peer_words(name, case, rows, unit, tables)
            if words is not None:
                cases.append(Case("%s: %s" % (case, name),
                                  functools.partial(peer, results.bin_dir, command, words, rows), base,
                                  {**dims, "client": name}))
    results.measure("rows", "ours and the released clients; x: times ours", cases, options.repeats,
                    [Column("given ns", "given_ns", ratio=True),
                     Column("M rows/s", "rows_per_s", 1e-6, "%.2f", ratio=True),
                     Column("cpu s/M rows", "cpu", form="%.3f", ratio=True),
                     Column("B/row", "wire_bytes", ratio=True)])


# ---- arrival ----

def peer_arrival(bin_dir, command, rate, rows):
    with Stack(bin_dir, with_sidecar=False, sink=["--latency", "id"]) as stack:
        done = run_peer(stack, command, ["paced", rows, 1, 1, rate])
        summary = stack.check_rows(rows)
        return {**summary["latency_ns"], "busy": done["cpu_s"] / done["acked_s"],
                "rate": rows / done["given_s"]}


def compare_arrival(results, options, peers):
    """Busy: ours, of the sidecar alone; a peer's, of the whole client."""
    cases = []
    for rate, rows in bench_latency.rates(options)[:1 if options.smoke else 2]:
        base = "%d/s ours" % rate
        dims = {"rate": rate}
        cases.append(bench_latency.chain_case(results.bin_dir, "chain", rate, rows, ()))
        cases.append(Case(base, functools.partial(bench_latency.arrival, results.bin_dir, False, "park",
                                                  rate, rows), base, {**dims, "client": "ours"}))
        for name, command in peers.items():
            if name != "python":
                cases.append(Case("%d/s %s" % (rate, name),
                                  functools.partial(peer_arrival, results.bin_dir, command, rate, rows),
                                  base, {**dims, "client": name}))
    results.measure("arrival", "publish, or flush, to arrival of single rows; x: times ours", cases,
                    options.repeats, bench_latency.LATENCIES)


# ---- idle ----

def peer_idle(bin_dir, command, name, seconds):
    with Stack(bin_dir, with_sidecar=False) as stack:
        words = ["idle", 1, 1] if name == "python" else ["idle", 1, 1, 1]
        process = subprocess.Popen([*command, stack.conf, *map(str, words)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("%s did not start" % name)
            time.sleep(1)
            return bench_latency.shares_of(process.pid, seconds)
        finally:
            stack.stop(process)


def compare_idle(results, options, peers):
    seconds = 5
    cases = [Case("ours", functools.partial(bench_latency.idle, results.bin_dir, False, 1, seconds),
                  None, {"client": "ours"})]
    for name, command in peers.items():
        cases.append(Case(name, functools.partial(peer_idle, results.bin_dir, command, name, seconds),
                          "ours", {"client": name}))
    results.measure("idle", "%d s with nothing to do, connected" % seconds, cases,
                    1 if options.quick else min(options.repeats, 3), [Column("% of a core", "core", 100, "%.3f"),
                                              Column("switches/s", "switches", form="%.1f")])


PARTS = {"rows": compare_rows, "arrival": compare_arrival, "idle": compare_idle}


def main():
    parser = bench.parser(__doc__, 5, PARTS)
    parser.add_argument("--work", help="where the peers are built")
    parser.add_argument("--go", help="a checkout of the Go client")
    parser.add_argument("--python", help="a Python that has questdb 6.0.0 and pyarrow")
    options = bench.parse(parser)
    results = bench.Results("compare", options)
    peers = build_peers(options)
    for name in options.only or (["rows", "arrival"] if options.smoke else PARTS):
        PARTS[name](results, options, peers)
    return results.exit_code()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
