#!/usr/bin/env python3
"""Wherever the bytes of a connection end, in either direction: a reconnect, and no row is lost.

The server closes each connection at the next byte, from the first on: through the upgrade, the dictionary and
a stretch of frames and answers, by FIN and by reset, without TLS, and in wider steps with it. QWP_CUTS_STEP=1 in
the environment takes every byte."""
import os
import time

from stack import Stack, arguments, finish, wait_until

STEP = int(os.environ.get("QWP_CUTS_STEP", "11"))
# Ours: request, dictionary, some frames. Theirs: the 101, then answers of 20 to 40 bytes.
LENGTHS = {"in": 1500, "out": 500}
LENGTHS_TLS = {"in": 2600, "out": 2200}  # with the handshake


def sweep(stack, direction, reset, step, length):
    """Returns how many connections were cut."""
    offsets = range(1, length, step)
    for byte in offsets:
        stack.sink.fault("cut=%s,byte=%d,times=1%s" % (direction, byte, ",reset=1" if reset else ""))
        stack.sink.fault("close=message,times=1")  # whoever is connected now has to come back
        wait_until(lambda: all(fault["hits"] for fault in stack.sink.faults()["faults"]),
                   "a connection reaches byte %d" % byte)
        stack.sink.clear_faults()
    return len(offsets)


def run(build, tls, step, lengths):
    start = time.monotonic()
    with Stack(build, tls=tls, sink=["--verify", "seq,producer"],
               conf="reconnect_initial_backoff_millis=1;reconnect_max_backoff_millis=4;") as stack:
        producer = stack.producer("--name", "p0", "--forever", "--pause-us", 500, "--symbols", 50)
        wait_until(lambda: stack.status()["rows_acked"] > 100, "rows arrive")
        cuts = sum(sweep(stack, direction, reset, step, lengths[direction])
                   for direction in ("in", "out") for reset in (False, True))
        producer.terminate()
        rows = finish(producer, "producer")["published"]
        assert stack.stop_sidecar() == 0, stack.log_text()
        summary = stack.sink.stop()
        print("  %s: %d cuts in %.0f s, %d rows, %d sent twice" % (
            "wss" if tls else "ws", cuts, time.monotonic() - start, rows, summary["doubled"]))
        assert summary["lost"] == 0 and summary["rows"] - summary["doubled"] == rows, summary
        assert summary["connections"] > cuts


def main():
    options = arguments(__doc__)
    run(options.build, False, STEP, LENGTHS)
    run(options.build, True, STEP * 7, LENGTHS_TLS)


if __name__ == "__main__":
    main()
