#!/usr/bin/env python3
"""Aim: the released clients can write to qwp-sink, and it shows what they wrote.

Method: installs the Python client (questdb 6.0.0) into an environment of its own, and builds a
small program on the Rust client (questdb-rs 7.2.1); both write random rows of every type they know,
by row and by data frame or chunk, over ws and wss, and every row that --ndjson shows is compared
with what was sent.

Exits with 77 when the package registry cannot be reached.

usage: test_sink_clients.py python|rust QWP_SINK WORK_DIR [SEED]
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from sink_process import Sink

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["questdb==6.0.0", "pandas", "pyarrow", "numpy"]
SKIPPED = 77
UNREACHABLE = re.compile(
    r"NewConnectionError|Temporary failure in name resolution|Name or service not known"
    r"|ConnectTimeout|ReadTimeout|Network is unreachable|ProxyError|Could not resolve host"
    r"|[Cc]ouldn't resolve host|failed to connect|Failed to connect|Connection refused"
    r"|SSLError|Connection timed out|Timeout was reached|spurious network error"
)


def run_or_skip(command, **options):
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    if done.returncode == 0:
        return
    print(done.stdout)
    if UNREACHABLE.search(done.stdout):
        print("skipped: the package registry cannot be reached")
        sys.exit(SKIPPED)
    sys.exit("failed: %s" % " ".join(map(str, command)))


def python_environment(work):
    """A virtual environment with the packages; used again when it was finished once."""
    place = work / "sink-venv"
    python = place / "bin" / "python"
    finished = place / "finished"
    wanted = "\n".join(PACKAGES)
    if finished.exists() and finished.read_text() == wanted:
        return python
    shutil.rmtree(place, ignore_errors=True)
    run_or_skip([sys.executable, "-m", "venv", str(place)])
    run_or_skip([str(python), "-m", "pip", "install", "--disable-pip-version-check", *PACKAGES])
    finished.write_text(wanted)
    return python


def test_python(sink_program, work, seed):
    python = python_environment(work)
    with tempfile.TemporaryDirectory(prefix="qwp-sink-") as directory:
        done = subprocess.run(
            [str(python), "-B", str(HERE / "client_rows.py"), sink_program, directory, str(seed)]
        )
    sys.exit(1 if done.returncode != 0 else 0)


def rust_program(work):
    if shutil.which("cargo") is None:
        print("skipped: cargo is not installed")
        sys.exit(SKIPPED)
    target = work / "sink-rust-client"
    run_or_skip(
        ["nice", "cargo", "build", "--locked", "--target-dir", str(target)],
        cwd=HERE / "rust-client",
    )
    return str(target / "debug" / "rust-client")


# What the sink may show where the client wrote nothing, by the reserved value of the type.
MISSING = {
    "flag": [None, False],
    "i8": [None, 0],
    "i16": [None, 0],
    "i32": [None, -(2**31)],
    "i64": [None, -(2**63)],
    "f32": [None, "NaN"],
    "f64": [None, "NaN"],
    "date": [None, -(2**63)],
}


def compare(sent, got):
    def by_table(rows):
        out = {}
        for row in rows:
            out.setdefault(row["table"], []).append(row)
        return out

    sent, got = by_table(sent), by_table(got)
    assert sorted(sent) == sorted(got), (sorted(sent), sorted(got))
    for table, rows in sent.items():
        assert len(rows) == len(got[table]), (table, len(rows), len(got[table]))
        for number, (a, b) in enumerate(zip(rows, got[table])):
            where = "%s, row %d: " % (table, number)
            assert (a["ts"], a["ts_unit"]) == (b["ts"], b["ts_unit"]), where + repr((a, b))
            for name, value in b["row"].items():
                if name in a["row"]:
                    # repr() tells 1 from 1.0 and -0.0 from 0.0.
                    assert repr(a["row"][name]) == repr(value), where + repr((name, a["row"][name], value))
                else:
                    assert value in MISSING.get(name, [None]), where + repr((name, value))
            absent = set(a["row"]) - set(b["row"])
            assert not absent, where + repr(absent)


TRANSPORTS = {
    "ws": ([], "ws::addr=127.0.0.1:{port};"),
    "wss with password": (
        ["--tls-self-signed", "{dir}/tls", "--auth", "user:secret", "--max-batch", "65536"],
        "wss::addr=localhost:{port};tls_roots={dir}/tls/ca.pem;username=user;password=secret;",
    ),
    "wss with token": (
        ["--tls-self-signed", "{dir}/tls", "--token", "t0ken"],
        "wss::addr=127.0.0.1:{port};tls_roots={dir}/tls/ca.pem;token=t0ken;",
    ),
}


def test_rust(sink_program, work, seed):
    client = rust_program(work)
    with tempfile.TemporaryDirectory(prefix="qwp-sink-") as directory:
        for number, (name, (arguments, conf)) in enumerate(TRANSPORTS.items()):
            for how in ("rows", "chunks"):
                here = os.path.join(directory, "%d-%s" % (number, how))
                arguments_here = [a.format(dir=here) for a in arguments]
                with Sink(sink_program, here, "--ndjson", here + "/rows", *arguments_here) as sink:
                    done = subprocess.run(
                        [client, conf.format(port=sink.port, dir=here), str(seed + number), how],
                        stdout=subprocess.PIPE,
                        check=True,
                    )
                    sent = [json.loads(line) for line in done.stdout.decode().splitlines()]
                    deadline = time.monotonic() + 60
                    while sink.summary()["rows"] < len(sent) and time.monotonic() < deadline:
                        time.sleep(0.02)
                    summary = sink.stop()
                    compare(sent, sink.rows())
                    assert summary["errors"] == 0 and summary["refused"] == 0, summary
                print("ok %s over %s: %d rows in %d messages" % (how, name, summary["rows"], summary["messages"]))


def main():
    which, sink_program, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 32)
    print("seed %d" % seed, flush=True)
    {"python": test_python, "rust": test_rust}[which](sink_program, work, seed)


if __name__ == "__main__":
    main()
