#!/usr/bin/env python3
"""Question: what does a store on disk cost beside the one in memory, for a TSBS load on tmpfs?

qwp-feed sends TSBS cpu-only data (QWPB, 10 tags and 10 integers a row) over and over through a
sidecar into qwp-sink: without sf_dir (memory mode, the baseline), with sf_dir on tmpfs and
sf_durability=memory, and the same with periodic. They run in turn; shown are medians over the
repeats, with the span, and the ratio to memory mode.

Guess made beforehand: rows/s and the sidecar's CPU within 10 % of memory mode; the difference is
the CRC over the payload (0.1 ns a byte) and the manifest's and watermark's stores.

  perf/bench_modes.py [--build DIR] [--repeats N] [--times N] [--smoke] [--json FILE]"""
import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys

from bench import Stack, cpu_s

MODES = {
    "memory": "",
    "disk": "sf_dir={dir}/store;",
    "disk, periodic": "sf_dir={dir}/store;sf_durability=periodic;",
}


class ModeStack(Stack):
    def __init__(self, bin_dir, mode):
        self.mode = mode
        super().__init__(bin_dir, tls=False)

    def start_sidecar(self, words):
        self.conf += MODES[self.mode].format(dir=self.directory)
        super().start_sidecar(words)


def run(bin_dir, mode, data, times):
    with ModeStack(bin_dir, mode) as stack:
        before = cpu_s(stack.sidecar.pid)
        fed = subprocess.run([os.path.join(bin_dir, "qwp-feed"), "--rings", stack.rings, "--format",
                              "qwpb", "--repeat", str(times), "--ring-bytes", "8m", "--json", data],
                             check=True, capture_output=True, text=True)
        cpu = cpu_s(stack.sidecar.pid) - before
        told = json.loads(fed.stdout)
        summary = stack.summary()
        if summary["rows"] != told["rows_acked"] or summary["errors"] != 0:
            raise RuntimeError("fed %s: %s" % (told, summary))
        return {"rows_per_s": told["rows_acked"] / told["seconds"], "cpu_ns": cpu * 1e9 / told["rows_acked"],
                "wire_bytes": summary["wire_bytes"] / told["rows_acked"]}


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(root, "build"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--times", type=int, default=100, help="how often the data is read")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", help="write all runs there")
    options = parser.parse_args()
    bin_dir = os.path.join(os.path.abspath(options.build), "bin")
    data = os.path.join(options.build, "tsbs-cpu-only.qwpb")
    with gzip.open(os.path.join(root, "tests", "data", "tsbs-cpu-only.qwpb.gz")) as packed, \
            open(data, "wb") as plain:
        shutil.copyfileobj(packed, plain)
    results = {mode: [] for mode in MODES}
    for _ in range(1 if options.smoke else options.repeats):
        for mode in MODES:
            results[mode].append(run(bin_dir, mode, data, 1 if options.smoke else options.times))
    middle = {mode: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
              for mode, runs in results.items()}
    print("%-16s %9s %15s %8s | %11s %8s | %6s" % ("store", "M rows/s", "span", "ratio",
                                                  "sidecar ns", "ratio", "B/row"))
    for mode, runs in results.items():
        m, base = middle[mode], middle["memory"]
        rates = sorted(run["rows_per_s"] / 1e6 for run in runs)
        print("%-16s %9.2f %15s %8.2f | %11.1f %8.2f | %6.1f" % (
            mode, m["rows_per_s"] / 1e6, "%.2f-%.2f" % (rates[0], rates[-1]),
            m["rows_per_s"] / base["rows_per_s"], m["cpu_ns"], m["cpu_ns"] / base["cpu_ns"],
            m["wire_bytes"]))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
