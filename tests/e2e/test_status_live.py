#!/usr/bin/env python3
"""What `qwp-sidecar status` shows of a running sidecar agrees with what producers and sink say."""
import json
import os
import signal
import subprocess

from stack import Stack, arguments, wait_until

ROWS = 1000


def status(stack, *words, expected=0):
    return stack.tool("status", "--rings", stack.rings, *words, code=expected).stdout


def watch(stack, lines, *words):
    """The first `lines` lines of --watch; then it is interrupted and ends by itself."""
    process = stack.start([os.path.join(stack.bin, "qwp-sidecar"), "status", "--rings", stack.rings,
                           "--watch", "--interval", "50ms", *words],
                          stdout=subprocess.PIPE, text=True)
    seen = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait(60) == 0
    return seen


def last_of_many(stack):
    """Rows that wake the sidecar thousands of times a second, and then none: answers and figures that waited for
    the next ones come by themselves."""
    process = stack.producer("--name", "often", "--forever", "--unit", 1, "--pause-us", 200)
    wait_until(lambda: stack.status()["rows_acked"] > 500, "rows flow")
    process.send_signal(signal.SIGSTOP)

    def all_told():
        shown = stack.status()
        waiting = [each["rows_published"] - each["rows_acked"] for each in shown["producers"]]
        return waiting == [0] and shown["frames_acked"] == shown["frames_published"] and shown["frames_waiting"] == 0
    wait_until(all_told, "the last rows are acknowledged and shown", 10)
    process.kill()
    process.wait()


if __name__ == "__main__":
    options = arguments(__doc__)
    for threading in ("shared", "dedicated"):
        with Stack(options.build, sidecar=["--linger", "0", "--threading", threading]) as stack:
            last_of_many(stack)
    with Stack(options.build, sink=["--auth", "user:s3cret"], conf="user=user;pass=s3cret;") as stack:
        producers = [stack.producer("--name", "p%d" % i, "--rows", ROWS, "--hold") for i in range(3)]
        for process in producers:
            process.stdout.readline()  # its rows are acknowledged
        wait_until(lambda: stack.status()["rows_acked"] == 3 * ROWS, "status shows all rows")
        shown = stack.status()
        assert shown["live"] and shown["state"] == "running" and shown["connection"] == "up", shown
        assert shown["pid"] == stack.sidecar.pid, shown
        assert shown["rows_stored"] == stack.sink.summary()["rows"] == 3 * ROWS, shown
        assert shown["frames_published"] == shown["frames_acked"] > 0, shown
        assert sorted(each["name"] for each in shown["producers"]) == ["p0", "p1", "p2"], shown
        for each in shown["producers"]:
            assert each["rows_published"] == each["rows_stored"] == each["rows_acked"] == ROWS, each
            assert each["state"] == "attached" and each["bytes_waiting"] == 0, each

        text = status(stack)
        assert "running" in text and "stored 3,000, acked 3,000" in text and "p2" in text, text
        assert "\x1b" not in "".join(watch(stack, 20)), "control sequences in a pipe"
        looks = [json.loads(line) for line in watch(stack, 3, "--json")]
        assert "rows_stored_per_s" not in looks[0] and looks[1]["rows_stored_per_s"] == 0, looks

        with open("/proc/%d/cmdline" % stack.sidecar.pid) as file:
            assert "s3cret" not in file.read(), "the secret is in the argument list"
        assert "s3cret" not in stack.log_text()

        for process in producers:
            process.stdin.close()
            assert process.wait(60) == 0
        wait_until(lambda: stack.status()["producers"] == [], "producers leave")
        assert stack.stop_sidecar() == 0
        assert "the sidecar is gone" in status(stack, expected=3)
        gone = json.loads(status(stack, "--json", expected=3))
        assert gone["state"] == "gone" and gone["rows_acked"] == 3 * ROWS, gone
