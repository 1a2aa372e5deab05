#!/usr/bin/env python3
"""Rings that are cut short or scribbled over cost their own producer, nobody else."""
import os
import random
import signal

from stack import Stack, arguments, finish, wait_until

RECORDS_OFF = 64 * 1024 + 1024 * 1024  # of a default ring: header, then definitions


def one_goes_wrong(build, harm, reason):
    """`harm` is done to the ring of a stopped producer; another one goes on beside it."""
    with Stack(build, sink=["--verify", "seq,producer"]) as stack:
        good = stack.producer("--name", "good", "--forever", "--pause-us", 200)
        bad = stack.producer("--name", "bad", "--rows", 10, "--hold")
        bad.stdout.readline()
        path = os.path.join(stack.rings, "default",
                            next(name for name in stack.ring_files() if name.startswith("bad")))
        bad.send_signal(signal.SIGSTOP)
        harm(path)
        def shown():
            return [p for p in stack.status()["producers"] if p["name"] == "bad"]
        wait_until(lambda: shown() and shown()[0]["state"] == "detached", "the ring is detached")
        assert reason in shown()[0]["reason"], shown()
        good.send_signal(signal.SIGTERM)
        figures = finish(good, "the good producer")
        assert figures["acked"] == figures["published"] > 0, figures
        bad.kill()
        wait_until(lambda: stack.ring_files() == [], "both rings are removed")
        assert stack.stop_sidecar() == 0, stack.log_text()
        summary = stack.sink.stop()
        assert summary["rows"] == figures["published"] + 10, (summary, figures)
        assert summary["lost"] + summary["doubled"] + summary["disordered"] == 0, summary


def cut_to_nothing(path):
    os.truncate(path, 0)


def scribble(path):
    """A plausible tail, and noise for records."""
    noise = random.Random(1).randbytes(64 * 1024)
    with open(path, "r+b") as file:
        file.seek(256)
        tail = int.from_bytes(file.read(8), "little")
        file.seek(RECORDS_OFF + tail)
        file.write(noise)
        file.seek(256)
        file.write((tail + len(noise)).to_bytes(8, "little"))


def impossible_tail(path):
    with open(path, "r+b") as file:
        file.seek(256)
        file.write((1 << 60).to_bytes(8, "little"))


if __name__ == "__main__":
    options = arguments(__doc__)
    for harm, reason in ((cut_to_nothing, "cut short"), (scribble, "record"),
                         (impossible_tail, "impossible tail")):
        one_goes_wrong(options.build, harm, reason)
        print(harm.__name__, "ok")
