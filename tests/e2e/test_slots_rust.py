#!/usr/bin/env python3
"""Slots change hands between us and the released Rust client, in both directions: as test_slots_python.py has
it, with a small program on that client (tests/sink/rust-client).

Skipped (77) without cargo, or when the crate and what it needs cannot be fetched."""
import os
import pathlib
import sys

from stack import arguments
from test_sink_clients import rust_program
from test_slots_python import first_of_many, ours_by_theirs, theirs_by_us

if __name__ == "__main__":
    options = arguments(__doc__)
    program = rust_program(pathlib.Path(options.build).resolve() / "tests")
    client = [os.path.join(os.path.dirname(program), "client-slot")]
    for scenario in (ours_by_theirs, theirs_by_us, first_of_many):
        scenario(options.build, client, "rs")
        print(scenario.__name__, "ok")
    sys.exit(0)
