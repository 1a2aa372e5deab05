#!/usr/bin/env python3
"""Aim: the page is made of what there is, and names what is missing.

Method: short runs of two programs, whose counts must be in the page; then results that are cut off, that lack a
part, and of a part that failed."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import page

HERE = os.path.dirname(os.path.abspath(__file__))


def read(directory):
    with open(os.path.join(directory, "README.md")) as file:
        return file.read()


def write(directory, name, text):
    with open(os.path.join(directory, "results", name + ".json"), "w") as file:
        file.write(text)


def run_two(build, directory):
    subprocess.run([os.path.join(HERE, "run"), "--smoke", "--build", build, "--out", directory, "--only",
                    "bench_encode", "--only", "bench_bell"], check=True, stdout=subprocess.DEVNULL)
    text = read(directory)
    for word in ("build/bin/bench_bell --smoke", "| tsbs |", "| fifo |", "plots/encode.svg", "not measured"):
        assert word in text, "%s is not in the page:\n%s" % (word, text[:3000])
    assert "is not whole" not in text
    assert os.path.getsize(os.path.join(directory, "plots", "encode.svg")) > 1000


def broken(directory):
    write(directory, "bench_encode", '{"program":"bench_encode","figures":[{"part"')
    parts = {"throughput": {"title": "rows/s", "repeats": 1, "failed": {"ws memory 1 x trade hot": "no room left"},
                            "cases": {"ws ceiling": {"base": None, "dims": {"scheme": "ws"}, "runs": [
                                {"rows_per_s": 17.25e6}]}}}}
    write(directory, "bench_e2e", json.dumps({"program": "bench_e2e", "host": {}, "command": "", "parts": parts}))
    page.make(directory)
    text = read(directory)
    for word in ("bench_encode is not whole: its results cannot be read", "Failed: ws memory 1 x trade hot",
                 "no room left", "| ws ceiling | 17.2 |", "| fifo |"):
        assert word in text, "%s is not in the page:\n%s" % (word, text[:3000])
    assert "cannot be shown" not in text


def no_time(build, directory):
    done = subprocess.run([os.path.join(HERE, "run"), "--smoke", "--build", build, "--out", directory, "--only",
                           "bench_e2e", "--minutes", "0.001"], stdout=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "bench_e2e is not whole" in read(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qwp-report-") as directory:
        run_two(options.build, directory)
        broken(directory)
        no_time(options.build, directory)
    print("the page is made, and names what is missing")


if __name__ == "__main__":
    sys.exit(main())
