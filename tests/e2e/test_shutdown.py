#!/usr/bin/env python3
"""SIGTERM, in each state that a connection can be in: the sidecar ends when its grace is over, says what is
left, and the next start delivers it; without a server, with one that stalls in each phase, and with one that
takes everything.

QWP_SHUTDOWN_SLACK_S: what an end may take beyond its grace, on a loaded machine (10)."""
import os
import re
import signal
import socket
import time

from stack import Stack, arguments, finish, wait_until

GRACE_MS = 400
SLACK_S = float(os.environ.get("QWP_SHUTDOWN_SLACK_S", "10"))
CONF = "close_flush_timeout_millis=%d;reconnect_max_backoff_millis=200;" % GRACE_MS
ROWS = 2000
# What to make of the server, whether it has a connection then, and whether rows get through.
STATES = [
    ("refuse", False), ("stall=accept", False), ("stall=tls", False), ("stall=upgrade", False),
    ("upgrade=trickle,ms=50", False), ("http=401", False), ("http=503", False), ("close=accept", False),
    ("close=upgrade", False), ("stall=answers", True), ("stall=reading", True), ("ack=drop", True),
    ("ack=late,ms=100000", True), ("close=message", True), ("status=6,text=not now", True),
]


def left_behind(log):
    """What the last words say: frames and rows that wait."""
    said = re.search(r'msg="closed: [^"]*".* frames_waiting=(\d+) rows_waiting=(\d+)', log)
    assert said, log
    return int(said.group(1)), int(said.group(2))


def end(stack, what):
    """Signals, and gives the exit code. An end that takes ten times its grace is stuck."""
    start = time.monotonic()
    stack.sidecar.send_signal(signal.SIGTERM)
    code = stack.sidecar.wait(GRACE_MS / 1000 + SLACK_S)
    print("  %s: exit %d after %.2f s" % (what, code, time.monotonic() - start), flush=True)
    return code


def one_state(build, fault, connected, tls, conf, sidecar=()):
    if fault == "stall=tls" and not tls:
        return
    with Stack(build, tls=tls, sink=["--verify", "seq,producer"], conf=CONF + conf, sidecar=sidecar) as stack:
        if connected:
            finish(stack.producer("--name", "before", "--rows", 100), "before")
        stack.sink.fault(fault)
        if not connected:
            stack.sink.fault("close=message,times=1")
        producer = stack.producer("--name", "p0", "--rows", ROWS, "--pause-us", 50)
        wait_until(lambda: stack.status()["rows_stored"] >= ROWS, "rows are stored")
        wait_until(lambda: stack.sink.faults()["hits"] > 0 or fault == "refuse", "the fault is met")
        assert end(stack, fault) == 3, stack.log_text()
        frames, rows = left_behind(stack.log_text())
        assert frames > 0 and (0 < rows <= ROWS if connected else rows == ROWS), (frames, rows)
        assert ("memory" in stack.log_text()) == ("sf_dir" not in conf)
        stack.sink.clear_faults()
        stack.start_sidecar()
        finish(producer, "producer")
        assert end(stack, fault + ", over") == 0
        summary = stack.sink.stop()
        assert summary["rows"] - summary["doubled"] == ROWS + (100 if connected else 0), summary
        assert summary["lost"] == summary["repeated"] == 0, summary


def no_answer_to_tcp(build):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        clients = [socket.socket() for _ in range(4)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        with Stack(build, conf_text="ws::addr=127.0.0.1:%d;%s" % (listener.getsockname()[1], CONF)) as stack:
            wait_until(lambda: stack.status()["connection"] == "connecting", "it tries")
            assert end(stack, "no answer to TCP, nothing waits") == 0
            stack.start_sidecar()
            stack.producer("--name", "p0", "--rows", 10)
            wait_until(lambda: stack.status()["rows_stored"] == 10, "rows are stored")
            assert end(stack, "no answer to TCP") == 3
        for client in clients:
            client.close()


def nothing_waits(build):
    """At once, whatever the grace; also when the server would stall the goodbye."""
    for fault in (None, "stall=reading", "stall=answers"):
        with Stack(build, conf="close_flush_timeout_millis=60000;") as stack:
            finish(stack.producer("--name", "p0", "--rows", 100), "producer")
            if fault:
                stack.sink.fault(fault)
            assert end(stack, "nothing waits, %s" % fault) == 0
            assert left_behind(stack.log_text()) == (0, 0)


def no_grace(build):
    with Stack(build, conf="close_flush_timeout_millis=0;", sink=["--fault", "stall=answers"]) as stack:
        stack.producer("--name", "p0", "--rows", 100)
        wait_until(lambda: stack.sink.summary()["rows"] == 100, "rows arrive")
        assert end(stack, "no grace") == 3


if __name__ == "__main__":
    options = arguments(__doc__)
    print("TLS, memory")
    for fault, connected in STATES:
        one_state(options.build, fault, connected, True, "")
    print("plain, disk, two threads")
    for fault, connected in STATES[::2]:
        one_state(options.build, fault, connected, False, "sf_dir={dir}/sf;", ["--threading", "dedicated"])
    no_answer_to_tcp(options.build)
    nothing_waits(options.build)
    no_grace(options.build)
