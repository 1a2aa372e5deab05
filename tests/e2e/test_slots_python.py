#!/usr/bin/env python3
"""Slots change hands between us and the released Python client, in both directions: every row arrives once,
with the right symbols.

Ours: killed with frames waiting in several small segments, new symbols in every frame, the active segment a
recycled one and its frames of equal size; the client delivers them and goes on appending there. Theirs:
left behind by a process that ended without a server, delivered by `qwp-sidecar drain`.

The client is installed from its registry; skipped (77) when that cannot be reached."""
import json
import os
import pathlib
import subprocess
import sys

from stack import Stack, arguments, finish, wait_until
from test_sink_clients import python_environment

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT_ROWS, ROWS = 2000, 20000


def run_client(client, conf, rows, seconds):
    """The client opens the slot, writes `rows`, and waits; 0 seconds: ends as a crash would."""
    done = subprocess.run([*client, conf, str(rows), str(seconds)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done
    return done.stdout.split()


def tags(stack, table):
    """What arrived of a table, in order."""
    return [(row["row"]["seq"], row["row"]["tag"]) for row in stack.sink.rows("rows")
            if row["table"] == table]


def ours_by_theirs(build, client, prefix):
    with Stack(build, tls=False, sink=["--ndjson", "{dir}/rows"],
               sidecar=["--linger", "0", "--batch-rows", "100"],
               conf="sf_dir={dir}/sf;sender_id=slot;sf_max_segment_bytes=64k;auto_flush_rows=100;"
               ) as stack:
        # Acknowledged frames first, so that segments are recycled.
        finish(stack.producer("--name", "a0", "--rows", ROWS, "--symbols", ROWS), "producer")
        port = stack.sink.port
        stack.sink.stop()
        delivered = tags(stack, "seq_0")
        late = stack.producer("--name", "b0", "--rows", ROWS, "--symbols", ROWS)
        wait_until(lambda: stack.status()["rows_stored"] == 2 * ROWS, "rows are stored")
        late.kill()
        stack.stop_sidecar(9)
        slot = os.path.join(stack.directory, "sf", "slot")
        shown = json.loads(subprocess.run([os.path.join(stack.bin, "qwp-sidecar"), "inspect", slot,
                                           "--json"], capture_output=True, text=True).stdout)
        assert len([s for s in shown["segments"] if s["frames"] > 0]) >= 3, shown
        # What we may have put there beside segments is no concern of the client's.
        os.mkdir(os.path.join(slot, "rejected"))
        for name in ("rejected/refused.qwpr", "sf-00000000000000ff.sfa.corrupt"):
            with open(os.path.join(slot, name), "wb") as file:
                file.write(b"SF01" + bytes(100))
        os.rename(os.path.join(stack.directory, "rows"), os.path.join(stack.directory, "before"))
        stack.start_sink("127.0.0.1:%d" % port)
        acked, published = run_client(client, "ws::addr=127.0.0.1:%d;sf_dir=%s/sf;sender_id=slot;" % (
            port, stack.directory), CLIENT_ROWS, 60)
        assert acked == published, (acked, published)
        stack.sink.stop()
        assert delivered == [(n, "a0-%d" % n) for n in range(ROWS)]
        late_rows = [row for row in tags(stack, "seq_0") if row[1].startswith("b0")]
        assert late_rows == [(n, "b0-%d" % n) for n in range(ROWS)], late_rows[:5]
        assert tags(stack, "client") == [(n, "%s-%d" % (prefix, n)) for n in range(CLIENT_ROWS)]


def theirs_by_us(build, client, prefix):
    with Stack(build, tls=False, sink=["--ndjson", "{dir}/rows"]) as stack:
        port = stack.sink.port
        stack.stop_sidecar()
        stack.sink.stop()
        os.mkdir(os.path.join(stack.directory, "sf"))
        run_client(client, "ws::addr=127.0.0.1:%d;sf_dir=%s/sf;sender_id=theirs;"
                           "sf_max_segment_bytes=64k;initial_connect_retry=async;" % (
                               port, stack.directory), CLIENT_ROWS, 0)
        stack.start_sink("127.0.0.1:%d" % port)
        done = subprocess.run([os.path.join(stack.bin, "qwp-sidecar"), "drain",
                               os.path.join(stack.directory, "sf", "theirs"), "--conf",
                               stack.connect_string()], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        stack.sink.stop()
        assert tags(stack, "client") == [(n, "%s-%d" % (prefix, n)) for n in range(CLIENT_ROWS)]


def first_of_many(build, client, prefix):
    """Our store has gone on in later slots, and the first one, which the client knows, holds no segment any
    more: it appends there, and we go on behind what it wrote."""
    with Stack(build, tls=False, sink=["--ndjson", "{dir}/rows"],
               sidecar=["--generation-symbols", "500"],
               conf="sf_dir={dir}/sf;sender_id=slot;") as stack:
        first = os.path.join(stack.directory, "sf", "slot")
        finish(stack.producer("--name", "a0", "--rows", 3000, "--symbols", 3000), "producer")
        wait_until(lambda: not [name for name in os.listdir(first) if name.endswith(".sfa")],
                   "the first slot is left")
        wait_until(lambda: stack.ring_files() == [], "rings are drained")
        assert stack.stop_sidecar() == 0, stack.log_text()
        acked, published = run_client(client, "ws::addr=127.0.0.1:%d;sf_dir=%s/sf;sender_id=slot;" % (
            stack.sink.port, stack.directory), CLIENT_ROWS, 60)
        assert acked == published, (acked, published)
        stack.start_sidecar()
        finish(stack.producer("--name", "b0", "--rows", 1000, "--symbols", 1000), "producer")
        assert stack.stop_sidecar() == 0, stack.log_text()
        stack.sink.stop()
        assert tags(stack, "client") == [(n, "%s-%d" % (prefix, n)) for n in range(CLIENT_ROWS)]
        assert tags(stack, "seq_0") == [(n, "a0-%d" % n) for n in range(3000)] + \
            [(n, "b0-%d" % n) for n in range(1000)]


if __name__ == "__main__":
    options = arguments(__doc__)
    python = python_environment(pathlib.Path(options.build) / "tests")
    client = [str(python), "-B", os.path.join(HERE, "client_slot.py")]
    for scenario in (ours_by_theirs, theirs_by_us, first_of_many):
        scenario(options.build, client, "py")
        print(scenario.__name__, "ok")
    sys.exit(0)
