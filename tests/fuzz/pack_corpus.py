#!/usr/bin/env python3
"""Writes a corpus directory as lines of hex for the replay: the small inputs, so many at most.

usage: pack_corpus.py CORPUS_DIR FILE.hex [INPUTS]   (first let the fuzzer -merge=1 it)
"""
import pathlib
import sys


def main():
    limit = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    inputs = sorted((path.read_bytes() for path in pathlib.Path(sys.argv[1]).iterdir()),
                    key=lambda data: (len(data), data))
    step = max(1, len(inputs) // limit)
    chosen = [data for data in inputs[::step] if len(data) <= 600]
    pathlib.Path(sys.argv[2]).write_text("".join(data.hex() + "\n" for data in chosen if data))


if __name__ == "__main__":
    main()
