#!/usr/bin/env python3
"""Question: how does the way through the sidecar compare with the released clients, each alone?

The same trade rows of 6 columns (2 symbols, 2 doubles, a long, a boolean, a time) go to the same
counting server (qwp-sink) from our producer library and sidecar, from the Rust client (crate
questdb-rs 7.2.1) and, data frames, from the Python client (questdb 6.0.0). Ours and the peers run
in turn, every repeat all of them; shown are medians, the span, and the ratio to ours.

  given    ns a row until the client has the last one, of the thread that writes
  rows/s   from the first row to the last acknowledgement
  cpu      CPU seconds per million rows: the client's, and for ours producer and sidecar together

Guess made beforehand, for two quiet cores: publishing each row 30 x cheaper than the Rust client,
1,000 rows a batch 15 x, end to end 3 x, CPU a fifth.

  perf/compare.py [--build DIR] [--repeats N] [--work DIR] [--python PYTHON] [--json FILE] [--smoke]

--work keeps what is built of the peers (default: build/peers)."""
import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys

from bench_e2e import Stack, cpu_s, finish

HERE = os.path.dirname(os.path.abspath(__file__))
RING = str(64 << 20)
# case -> (rows, rows a batch, tables); a batch is published, or flushed, by itself
CASES = {
    "each row, 1 table": (100000, 1, 1),
    "each row, 100 tables": (100000, 1, 100),
    "1,000 rows a batch": (2000000, 1000, 1),
    "columns, 10,000 rows each": (10000000, 10000, 1),
}
COLUMNAR = "columns, 10,000 rows each"


def ours(bin_dir, case, rows, unit, tables):
    way = ["--way", "chunk"] if case == COLUMNAR else []
    with Stack(bin_dir, tls=False) as stack:
        producer = stack.producer("--rows", rows, "--unit", unit, "--tables", tables, "--ring-bytes",
                                  RING, *way)
        before = cpu_s(stack.sidecar.pid)
        producer.stdin.write("\n")
        producer.stdin.flush()
        done = finish(stack, producer)
        cpu = done["cpu_s"] + cpu_s(stack.sidecar.pid) - before
        check(stack, rows)
        return outcome(rows, (done["published_ns"] - done["start_ns"]) / 1e9,
                       (done["acked_ns"] - done["start_ns"]) / 1e9, cpu, stack)


def peer(bin_dir, command, rows):
    """A client of its own: `command` takes the connect string behind its program."""
    with Stack(bin_dir, tls=False, with_sidecar=False) as stack:
        program, words = command
        run = subprocess.run([*program, stack.conf, *map(str, words)], capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError("%s: %s" % (program, run.stderr[-500:]))
        done = json.loads(run.stdout)
        check(stack, rows)
        return outcome(rows, done["given_s"], done["acked_s"], done["cpu_s"], stack)


def check(stack, rows):
    summary = stack.summary()
    if summary["rows"] != rows or summary["errors"] != 0:
        raise RuntimeError("sent %d rows: %s" % (rows, summary))


def outcome(rows, given_s, acked_s, cpu, stack):
    return {"given_ns": given_s * 1e9 / rows, "rows_per_s": rows / acked_s,
            "cpu": cpu / (rows / 1e6), "wire_bytes": stack.summary()["wire_bytes"] / rows}


# ---- the peers ----

def rust(work):
    if shutil.which("cargo") is None:
        return None, "no cargo"
    target = os.path.join(work, "rust")
    built = subprocess.run(["cargo", "build", "--release", "--locked", "--target-dir", target],
                           cwd=os.path.join(HERE, "peers", "rust"), capture_output=True, text=True)
    if built.returncode != 0:
        return None, built.stderr.strip().splitlines()[-1]
    return os.path.join(target, "release", "rust-peer"), ""


def python(given, work):
    """A Python that has the client: the one given, or an environment made for it."""
    program = given or os.path.join(work, "python", "bin", "python")
    if given is None and not os.path.exists(program):
        made = subprocess.run([sys.executable, "-m", "venv", os.path.join(work, "python")],
                              capture_output=True, text=True)
        made = made if made.returncode != 0 else subprocess.run(
            [program, "-m", "pip", "install", "--disable-pip-version-check", "questdb==6.0.0",
             "pyarrow", "pandas", "numpy"], capture_output=True, text=True)
        if made.returncode != 0:
            return None, (made.stderr or made.stdout).strip().splitlines()[-1]
    return program, ""


def commands(rust_program, python_program, case, rows, unit, tables):
    """Peers that can do the case: name -> command."""
    how = "chunks" if case == COLUMNAR else "rows"
    out = {}
    if rust_program is not None:
        out["rust"] = ([rust_program], [how, rows, unit, tables])
    if python_program is not None and case == COLUMNAR:
        out["python"] = ([python_program, "-B", os.path.join(HERE, "peers", "python_peer.py")],
                         [rows, unit])
    return out


# ---- the table ----

def show(results):
    print("%-27s %-8s %10s %8s %15s %9s %7s | %s" % (
        "case", "client", "given ns", "M rows/s", "span", "cpu s/M", "B/row",
        "given, cpu: times ours; rows/s: ours times its"))
    for case, by_client in results.items():
        middle = {name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                  for name, runs in by_client.items()}
        for name, runs in by_client.items():
            m, us = middle[name], middle["ours"]
            rates = sorted(run["rows_per_s"] / 1e6 for run in runs)
            print("%-27s %-8s %10.1f %8.2f %15s %9.3f %7.1f | %6.1f %6.1f %6.1f" % (
                case, name, m["given_ns"], m["rows_per_s"] / 1e6,
                "%.2f-%.2f" % (rates[0], rates[-1]), m["cpu"], m["wire_bytes"],
                m["given_ns"] / us["given_ns"], m["cpu"] / max(us["cpu"], 1e-9),
                us["rows_per_s"] / m["rows_per_s"]))


def main():
    root = os.path.dirname(HERE)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(root, "build"))
    parser.add_argument("--work")
    parser.add_argument("--python", help="a Python that has questdb 6.0.0 and pyarrow")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--smoke", action="store_true",
                        help="ours alone, and so short that figures mean nothing")
    parser.add_argument("--json", help="write all runs there")
    options = parser.parse_args()
    bin_dir = os.path.join(os.path.abspath(options.build), "bin")
    work = os.path.abspath(options.work or os.path.join(options.build, "peers"))
    peers = {"rust": (None, "smoke"), "python": (None, "smoke")}
    if not options.smoke:
        os.makedirs(work, exist_ok=True)
        peers = {"rust": rust(work), "python": python(options.python, work)}
    print("%s %s %s, %d cpus, load %.1f, %d repeats" % (
        platform.system(), platform.release(), platform.machine(), os.cpu_count(),
        os.getloadavg()[0], options.repeats))
    for name, (program, why) in peers.items():
        if program is None:
            print("without %s: %s" % (name, why))
    programs = [program for program, _ in peers.values()]
    results = {case: {} for case in CASES}
    for _ in range(1 if options.smoke else options.repeats):
        for case, (rows, unit, tables) in CASES.items():
            rows = rows // 100 if options.smoke else rows
            unit = min(unit, rows)
            results[case].setdefault("ours", []).append(ours(bin_dir, case, rows, unit, tables))
            for name, command in commands(*programs, case, rows, unit, tables).items():
                results[case].setdefault(name, []).append(peer(bin_dir, command, rows))
    show(results)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
