#!/usr/bin/env python3
"""The same work on every event loop and bell that a host may leave us: io_uring whole, without its futex wait, without an
operation that is needed, or forbidden; shared and dedicated; with next to no lockable memory; in a small memory cgroup."""
import ctypes
import os
import resource
import signal
import time

from stack import Stack, arguments, context_switches, cpu_ticks, finish, wait_until

PRODUCERS, ROWS, IDLE_S = 4, 20000, 1.5
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14
FELL_BACK = "epoll is used instead of io_uring"


def expected_lines(stack):
    """How often the log says that epoll was taken, and which loop it names."""
    log = stack.log_text()
    loop = "uring" if " loop=uring " in log else "epoll"
    assert " loop=%s " % loop in log, log
    return log.count(FELL_BACK), loop


def work(stack, rows=ROWS):
    """Producers write, end, and one stays: nothing is lost, and then nobody is woken."""
    producers = [stack.producer("--name", "p%d" % i, "--rows", rows) for i in range(PRODUCERS)]
    held = stack.producer("--name", "held", "--rows", 10, "--hold")
    for process in producers:
        figures = finish(process, "a producer")
        assert figures["acked"] == rows, figures
    held.stdout.readline()
    wait_until(lambda: len(stack.ring_files()) == 1, "the rings of those who ended are removed")
    time.sleep(1.5)  # the last figures are written, spares are made
    pid = stack.sidecar.pid
    ticks, switches = cpu_ticks(pid), context_switches(pid)
    time.sleep(IDLE_S)
    ticks, switches = cpu_ticks(pid) - ticks, context_switches(pid) - switches
    assert ticks == 0 and switches == 0, (ticks, switches)
    # And woken when something comes.
    finish(stack.producer("--name", "late", "--rows", 100), "a late producer")
    held.send_signal(signal.SIGKILL)
    wait_until(lambda: stack.ring_files() == [], "all rings are removed")
    assert stack.stop_sidecar() == 0, stack.log_text()
    summary = stack.sink.stop()
    assert summary["rows"] == PRODUCERS * rows + 110, summary
    assert summary["lost"] + summary["doubled"] + summary["disordered"] == 0, summary


def run(build, *sidecar, **options):
    with Stack(build, sink=["--verify", "seq,producer"], sidecar=sidecar, **options) as stack:
        work(stack)
        return expected_lines(stack)


def loops(build):
    _, loop = run(build)
    has_uring = loop == "uring"
    print("auto:", loop)
    assert run(build, "--loop", "epoll") == (0, "epoll")
    assert run(build, "--loop", "epoll", "--threading", "dedicated") == (0, "epoll")
    # One line, though there are several loops.
    assert run(build, "--uring-without", "all", "--threading", "dedicated") == (1, "epoll")
    assert run(build, "--uring-without", "send") == (1, "epoll")
    if not has_uring:
        print("no io_uring here: its own forms are not run")
        return
    assert run(build, "--uring-without", "futex") == (0, "uring")
    assert run(build, "--uring-without", "futex", "--threading", "dedicated") == (0, "uring")


class Prepared(Stack):
    """`prepare` is called in each process before it becomes the sidecar or a producer."""

    def __init__(self, prepare, build, **options):
        self.prepare = prepare
        super().__init__(build, **options)

    def start(self, command, **options):
        return super().start(command, preexec_fn=self.prepare, **options)


def little_lockable(build):
    """`ulimit -l 64`, and no privilege (CAP_IPC_LOCK) to pass over it."""
    libc = ctypes.CDLL(None)

    def prepare():
        libc.prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)  # root's; fails for others, who lack it
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 * 1024, 64 * 1024))

    with Prepared(prepare, build, sink=["--verify", "seq,producer"]) as stack:
        with open("/proc/%d/limits" % stack.sidecar.pid) as limits:
            assert any(line.split()[:4] == ["Max", "locked", "memory", "65536"] for line in limits)
        work(stack)
        print("ulimit -l 64:", expected_lines(stack)[1])


def small_cgroup(limit):
    """A directory of a memory cgroup with that limit, or None."""
    for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                       ("/sys/fs/cgroup", "memory.max")):
        path = os.path.join(root, "qwp-test-%d" % os.getpid())
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, file), "w") as out:
                out.write(str(limit))
            return path
        except OSError:
            os.rmdir(path)
    return None


def limited_memory(build):
    """Sidecar, producers, rings and the store in memory within 96 MB."""
    path = small_cgroup(96 << 20)
    if path is None:
        print("no memory cgroup to be made here: not run")
        return

    def enter():
        with open(os.path.join(path, "cgroup.procs"), "w") as out:
            out.write(str(os.getpid()))

    try:
        with Prepared(enter, build, sink=["--verify", "seq,producer"],
                      conf="sf_max_segment_bytes=1m;sf_max_total_bytes=16m;") as stack:
            with open(os.path.join(path, "cgroup.procs")) as members:
                assert str(stack.sidecar.pid) in members.read().split()
            work(stack, 200000)
        print("96 MB of memory: ok")
    finally:
        wait_until(lambda: open(os.path.join(path, "cgroup.procs")).read() == "", "it empties")
        os.rmdir(path)


if __name__ == "__main__":
    options = arguments(__doc__)
    if os.environ.pop("QWP_TEST_LOOP", None):
        print("chooses its loops itself")
    for test in (loops, little_lockable, limited_memory):
        test(options.build)
        print(test.__name__, "ok")
