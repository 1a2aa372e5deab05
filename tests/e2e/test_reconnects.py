#!/usr/bin/env python3
"""A thousand forced reconnects leave nothing behind: memory and descriptors are what they were.

The server ends each connection in one of several ways, some before anything is acknowledged; the first
hundred reconnects warm up what is kept for good.

QWP_RECONNECTS=N: so many (1000)."""
import os

from stack import Stack, arguments, wait_until

RECONNECTS = int(os.environ.get("QWP_RECONNECTS", "1000"))
WARM_UP = 100
# What an allocator may keep or hand back in between; a leak of one session (190 KiB), address list, TLS
# object (20 KiB) or 4 KiB per reconnect is far above.
MEMORY_SLACK = 2 * 1024 * 1024


def resident_bytes(pid):
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return sum(int(line.split()[1]) * 1024 for line in file
                   if line.startswith(("Private_Dirty:", "Private_Clean:")))


def descriptors(pid):
    return sorted(os.readlink("/proc/%d/fd/%s" % (pid, fd)).split(":")[0]
                  for fd in os.listdir("/proc/%d/fd" % pid))


def settled(stack):
    """With one connection that is up and everything acknowledged."""
    stack.sink.clear_faults()

    def quiet():
        status = stack.status()
        return status["connection"] == "up" and status["rows_stored"] == status["rows_acked"]

    wait_until(quiet, "everything is acknowledged")
    return resident_bytes(stack.sidecar.pid), descriptors(stack.sidecar.pid)


def reconnect(stack, producer, count):
    """So many connections come and go, with rows in between."""
    sink = stack.sink
    until = sink.summary()["connections"] + count
    for fault in ("close=message,chance=20", "close=message,chance=20,reset=1",
                  "close=message,chance=20,code=1001", "close=upgrade,chance=10", "close=accept,chance=10",
                  "http=503,chance=10", "answer=nonsense,chance=10", "cut=out,byte=500,spread=3000",
                  "status=6,chance=10,text=try again"):
        sink.fault(fault)
    wait_until(lambda: sink.summary()["connections"] >= until, "%d reconnects" % count, 240)
    assert producer.poll() is None


def run(build, tls):
    with Stack(build, tls=tls, sink=["--verify", "seq,producer"],
               conf="reconnect_initial_backoff_millis=1;reconnect_max_backoff_millis=1;") as stack:
        producer = stack.producer("--name", "p0", "--forever", "--pause-us", 2000)
        reconnect(stack, producer, WARM_UP)
        producer.kill()
        producer.wait()
        bytes_before, fds_before = settled(stack)
        producer = stack.producer("--name", "p1", "--forever", "--pause-us", 2000)
        reconnect(stack, producer, RECONNECTS)
        producer.kill()
        producer.wait()
        bytes_after, fds_after = settled(stack)
        summary = stack.sink.summary()
        print("%s: %d reconnects, %d KiB before, %+d KiB, %d descriptors" % (
            "TLS" if tls else "plain", RECONNECTS, bytes_before // 1024,
            (bytes_after - bytes_before) // 1024, len(fds_after)))
        assert fds_after == fds_before, (fds_before, fds_after)
        assert bytes_after - bytes_before < MEMORY_SLACK, (bytes_before, bytes_after)
        assert summary["lost"] == summary["repeated"] == 0, summary


if __name__ == "__main__":
    options = arguments(__doc__)
    for tls in (True, False):
        run(options.build, tls)
