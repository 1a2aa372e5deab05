#!/usr/bin/env python3
"""Rings that are cut short or scribbled over cost their own producer, nobody else; producers that stop hold up nobody; and
those that are killed, with or without their sidecar, leave nothing behind.

QWP_KILL_ROUNDS=100, QWP_SEED=N: longer, and elsewhere."""
import ctypes
import fcntl
import os
import random
import signal
import struct
import time

from stack import Stack, arguments, finish, wait_until

RECORDS_OFF = 64 * 1024 + 1024 * 1024  # of a default ring: header, then definitions
RING_BYTES = int(os.environ.get("QWP_TEST_RING_BYTES", 1 << 20))
PIDFD_GETFD = 438
ROW_BYTES = 48  # of a sequence_producer without symbols


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


def stopped_hold_up_nobody(build):
    """Stopped in the middle of writing, for as long as it takes; what they had published is stored."""
    with Stack(build, sink=["--verify", "seq,producer"]) as stack:
        asleep = [stack.producer("--name", "asleep%d" % i, "--forever", "--unit", 3) for i in range(4)]
        wait_until(lambda: stack.status()["rows_acked"] > 1000, "they write")
        for process in asleep:
            process.send_signal(signal.SIGSTOP)
        finish(stack.producer("--name", "good", "--rows", 50000), "the good producer")
        wait_until(lambda: all(p["bytes_waiting"] == 0 for p in stack.status()["producers"]), "all is taken")
        total = 50000
        for process in asleep:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            figures = finish(process, "one that slept")
            assert figures["acked"] == figures["published"], figures
            total += figures["published"]
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["rows"] == total, (summary, total)
        assert summary["lost"] + summary["doubled"] + summary["disordered"] == 0, summary


def full_rings_hold_up_nobody(build):
    """Two rings full to the brim, frames of 1,000 rows, and a few rows of others: these are in the first frames, and do not wait
    until the full ones are empty, which those who fill them as fast as they are read never are."""
    with Stack(build, sink=["--ndjson", "{dir}/rows"], conf="auto_flush_rows=1000;") as stack:
        few = [stack.producer("--name", "first", "--forever", "--pause-us", 1000)]
        wait_until(lambda: stack.status()["rows_acked"] > 0, "it is attached")
        greedy = [stack.producer("--name", "greedy%d" % i, "--forever") for i in range(2)]
        wait_until(lambda: len(stack.status()["producers"]) == 3, "all are attached")
        few.append(stack.producer("--name", "last", "--forever", "--pause-us", 1000))
        wait_until(lambda: len(stack.status()["producers"]) == 4, "all are attached")
        stack.sidecar.send_signal(signal.SIGSTOP)
        paths = [os.path.join(stack.rings, "default", name) for name in stack.ring_files()]
        rings = {os.path.basename(path).split("-")[0]: os.open(path, os.O_RDONLY) for path in paths}

        def waiting(name):
            tail, head = positions(rings[name])
            return tail - head
        wait_until(lambda: all(waiting(name) > 0.9 * RING_BYTES for name in ("greedy0", "greedy1")), "they are full")
        wait_until(lambda: waiting("first") > 0 and waiting("last") > 0, "the others have rows")
        for process in greedy + few:
            process.send_signal(signal.SIGSTOP)
        stack.sidecar.send_signal(signal.SIGCONT)
        wait_until(lambda: all(waiting(name) == 0 for name in rings), "all is stored")
        for fd in rings.values():
            os.close(fd)
        for process in greedy + few:
            process.kill()
        wait_until(lambda: stack.ring_files() == [], "their rings are removed")
        assert stack.stop_sidecar() == 0
        stack.sink.stop()
        names = [row["row"]["producer"] for row in stack.sink.rows()]
        behind = names[::-1].index("last"), names[::-1].index("first")
        print("rows behind the last ones of the few:", behind)
        assert min(behind) > 1.5 * RING_BYTES / ROW_BYTES, behind


def told_before_the_lock_is_free(build):
    """The kernel tells of a close before it gives up the lock: a ring that is looked at in between is looked
    at again. Here the lock outlives its producer in a second descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Stack(build, sink=["--verify", "seq,producer"]) as stack:
        producer = stack.producer("--name", "p", "--rows", 10, "--hold")
        producer.stdout.readline()
        path = os.path.join(stack.rings, "default", stack.ring_files()[0])
        number = next(fd for fd in os.listdir("/proc/%d/fd" % producer.pid)
                      if os.readlink("/proc/%d/fd/%s" % (producer.pid, fd)) == path)
        held = libc.syscall(PIDFD_GETFD, os.pidfd_open(producer.pid), int(number), 0)
        if held < 0:
            print("skipped: pidfd_getfd: " + os.strerror(ctypes.get_errno()))
            return
        producer.kill()
        producer.wait()
        os.close(os.open(path, os.O_WRONLY))  # what the sidecar is told of
        time.sleep(0.1)
        assert os.path.exists(path)
        fcntl.flock(held, fcntl.LOCK_UN)  # of this it is not
        wait_until(lambda: stack.ring_files() == [], "the ring is removed", 5)
        os.close(held)
        assert stack.stop_sidecar() == 0


def positions(fd):
    """tail and head of a ring, also of one that has no name any more (ipc/qwp_ring_layout.h)."""
    return struct.unpack_from("<Q", os.pread(fd, 8, 256))[0], struct.unpack_from("<Q", os.pread(fd, 8, 384))[0]


def killed_in_rounds(build):
    """kill -9 at any point of writing: all that was published is drained, the ring removed, the directory as before."""
    rounds, count = int(os.environ.get("QWP_KILL_ROUNDS", "8")), 3
    seed = int(os.environ.get("QWP_SEED", "5"))
    print("seed", seed)
    rng = random.Random(seed)
    with Stack(build, sink=["--verify", "seq,producer"]) as stack:
        instance = os.path.join(stack.rings, "default")
        before = sorted(os.listdir(instance))
        longest = 0.0
        for number in range(rounds):
            producers = [stack.producer("--name", "r%dp%d" % (number, i), "--forever", "--unit", rng.choice((1, 7, 50)),
                                        "--symbols", 1000) for i in range(count)]
            wait_until(lambda: len(stack.ring_files()) == count, "their rings are there")
            fds = [os.open(os.path.join(instance, name), os.O_RDONLY) for name in stack.ring_files()]
            victims = list(producers)
            if number % 2 == 1:
                victims.insert(rng.randrange(count + 1), stack.sidecar)
            for process in victims:
                time.sleep(rng.uniform(0, 0.03))
                process.kill()
            for process in victims:
                process.wait()
            if stack.sidecar in victims:
                stack.start_sidecar()
            started = time.monotonic()
            wait_until(lambda: stack.ring_files() == [], "the rings are removed")
            longest = max(longest, time.monotonic() - started)
            for fd in fds:
                tail, head = positions(fd)
                assert tail == head, (tail, head)
                os.close(fd)
            assert sorted(os.listdir(instance)) == before, os.listdir(instance)
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["lost"] + summary["repeated"] + summary["disordered"] == 0, summary
        print("%d rounds, %d rows; longest from death to removal: %.2f s" % (rounds, summary["rows"], longest))


if __name__ == "__main__":
    options = arguments(__doc__)
    for harm, reason in ((cut_to_nothing, "cut short"), (scribble, "record"),
                         (impossible_tail, "impossible tail")):
        one_goes_wrong(options.build, harm, reason)
        print(harm.__name__, "ok")
    for test in (stopped_hold_up_nobody, full_rings_hold_up_nobody, told_before_the_lock_is_free,
                 killed_in_rounds):
        test(options.build)
        print(test.__name__, "ok")
