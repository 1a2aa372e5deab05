#!/usr/bin/env python3
"""Writes the recorded messages as inputs for fuzz_decode: one file a message, and one with all.

usage: make_corpus.py tests/data/client-messages CORPUS_DIR
"""
import pathlib
import struct
import sys


def main():
    source, target = map(pathlib.Path, sys.argv[1:3])
    target.mkdir(parents=True, exist_ok=True)
    together = b""
    for path in sorted(source.glob("*.hex")):
        message = bytes.fromhex("".join(path.read_text().split()))
        framed = struct.pack("<H", len(message)) + message
        together += framed
        (target / path.stem).write_bytes(framed)
        (target / (path.stem + "-after")).write_bytes(together)


if __name__ == "__main__":
    main()
