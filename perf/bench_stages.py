#!/usr/bin/env python3
"""Question: where does the time of a row go, from its producer's bell to its server's hands?

Rows are published one by one at a rate, linger 0, the sidecar parked between them, while the kernel
traces system calls and wake-ups. Each row's way has five stages:

  ring      the producer enters the futex wake, until the one between is woken
  wake      until that one is back from its wait
  own       until it enters the send: here the sidecar looks at the ring, encodes, stores and frames
  send      until the receiver is woken
  receive   until that one is back from its wait

The baseline, in turn with ours, is bench_chain's "chain": the same wake-ups and the same send with
nothing in between. Tracing itself costs a microsecond or two in all.

Guess made beforehand, for two quiet cores: at 10,000 rows/s own 3 us where the chain has 1; at 1,000,
where code and data are no longer in the caches, 9 and 2; the other stages the chain's + 1.

Needs root, and tracefs: mount -t tracefs nodev /sys/kernel/tracing

  perf/bench_stages.py [--build DIR] [--quick] [--repeats N] [--json FILE] [--smoke]
"""
import collections
import contextlib
import dataclasses
import functools
import os
import platform
import re
import statistics
import sys

import bench
import bench_latency
from bench import SKIPPED, Case, Column

TRACEFS = "/sys/kernel/tracing"
EVENTS = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit", "sched/sched_waking")
BUFFER_KIB = 32 * 1024  # of each core
FIRST_PID_NAMESPACE = 0xEFFFFFFC  # its inode; events name processes by their numbers there
CALLS = {"x86_64": {"clock_nanosleep": 230, "futex": 202, "sendto": 44},
         "aarch64": {"clock_nanosleep": 115, "futex": 98, "sendto": 206}}
STAGES = ("ring", "wake", "own", "send", "receive")
LINE = re.compile(r"\s*.+-(\d+)\s+\[\d+\]\s+\S+\s+([\d.]+): (\w+): (.*)")
KEPT = re.compile(r"# entries-in-buffer/entries-written: (\d+)/(\d+)")
NUMBER = re.compile(r"NR (-?\d+)")
WOKEN = re.compile(r"\bpid=(\d+)")

Event = collections.namedtuple("Event", "ns thread kind number")  # of a call, or of who is woken


class Trace:
    """An instance of the kernel's tracing of its own, for what this process starts from now on."""

    def __init__(self):
        self.directory = os.path.join(TRACEFS, "instances", "qwp-%d" % os.getpid())

    def __enter__(self):
        os.mkdir(self.directory)
        try:
            self.write("tracing_on", 0)
            self.write("trace_clock", "mono")
            self.write("buffer_size_kb", BUFFER_KIB)
            self.write("options/event-fork", 1)
            self.write("set_event_pid", os.getpid())
            for event in EVENTS:
                self.write("events/%s/enable" % event, 1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        os.rmdir(self.directory)

    def write(self, name, value):
        with open(os.path.join(self.directory, name), "w") as file:
            file.write(str(value))

    def begin(self):
        self.write("trace", "")
        self.write("tracing_on", 1)

    def end(self):
        """The events since begin(), in their order."""
        self.write("tracing_on", 0)
        events = []
        with open(os.path.join(self.directory, "trace")) as file:
            for line in file:
                kept = KEPT.match(line)
                if kept and kept[1] != kept[2]:
                    raise RuntimeError("the kernel's buffer took %s of %s events" % kept.groups())
                found = LINE.match(line)
                number = found and (WOKEN if found[3] == "sched_waking" else NUMBER).search(found[4])
                if number:
                    events.append(Event(float(found[2]) * 1e9, int(found[1]), found[3],
                                        int(number[1])))
        return events


def most_common(values, what):
    counts = collections.Counter(values).most_common(1)
    if not counts:
        raise RuntimeError("the trace has no " + what)
    return counts[0][0]


def roles(events, calls):
    """The thread that gives the rows, the one that it wakes, and the one that that one wakes."""
    giver = most_common((e.thread for e in events if e.kind == "sys_enter" and
                         e.number == calls["clock_nanosleep"]), "producer that sleeps between rows")
    carrier = most_common((e.number for e in events if e.kind == "sched_waking" and
                           e.thread == giver), "one that the producer wakes")
    receiver = most_common((e.number for e in events if e.kind == "sched_waking" and
                            e.thread == carrier and e.number != giver), "receiver that is woken")
    return giver, carrier, receiver


def ways(events, calls):
    """For each row that went all of it: the six times between which its stages lie."""
    giver, carrier, receiver = roles(events, calls)
    # What ends each stage, in their order: thread (None: any), kind, number (None: any).
    ends = ((None, "sched_waking", carrier), (carrier, "sys_exit", None),
            (carrier, "sys_enter", calls["sendto"]), (None, "sched_waking", receiver),
            (receiver, "sys_exit", None))
    times = []
    for event in events:
        if event.thread == giver and event[2:] == ("sys_enter", calls["futex"]):
            times = [event.ns]
        elif times:
            thread, kind, number = ends[len(times) - 1]
            if (event.kind == kind and thread in (None, event.thread) and
                    number in (None, event.number)):
                times.append(event.ns)
                if len(times) > len(ends):
                    yield times
                    times = []


def figures(events, least):
    """p50 of each stage and of all of them, p99 of all, in ns; of `least` rows or more."""
    found = list(ways(events, CALLS[platform.machine()]))
    if len(found) < least:
        raise RuntimeError("only %d rows are whole in the trace" % len(found))
    out = {stage: statistics.median(times[i + 1] - times[i] for times in found)
           for i, stage in enumerate(STAGES)}
    whole = sorted(times[-1] - times[0] for times in found)
    return {**out, "p50": statistics.median(whole), "p99": whole[len(whole) * 99 // 100],
            "rows": len(found)}


def traced(trace, run, least):
    trace.begin()
    run()
    return figures(trace.end(), least)


def cases(bin_dir, trace, options):
    for rate in (1000,) if options.smoke else (1000, 10000):
        rows = rate // 4 if options.smoke else rate * (2 if options.quick else 5)
        least = 1 if options.smoke else rows // 2  # rows that meet on their way are left out
        base = bench_latency.chain_case(bin_dir, "chain", rate, rows, ())
        yield dataclasses.replace(base, run=functools.partial(traced, trace, base.run, least))
        for scheme in ("ws",) if options.smoke else ("ws", "wss"):
            run = functools.partial(bench_latency.arrival, bin_dir, scheme == "wss", "park", rate, rows)
            yield Case("%d/s %s park" % (rate, scheme), functools.partial(traced, trace, run, least),
                       base.name, {"rate": rate, "way": scheme + " park"})


def main():
    options = bench.parse(bench.parser(__doc__, 5))
    if platform.machine() not in CALLS:
        print("skipped: the numbers of system calls on %s are not known" % platform.machine())
        return SKIPPED
    if os.stat("/proc/self/ns/pid").st_ino != FIRST_PID_NAMESPACE:
        print("skipped: the kernel traces processes by other numbers than they have in this container")
        return SKIPPED
    results = bench.Results("bench_stages", options)
    with contextlib.ExitStack() as stack:
        try:
            trace = stack.enter_context(Trace())
        except OSError as error:
            print("skipped: it needs root, and tracefs at %s: %s" % (TRACEFS, error))
            return SKIPPED
        results.measure("stages", "us from the bell to the receiver, stage by stage; all traced",
                        list(cases(results.bin_dir, trace, options)), options.repeats,
                        [Column("p50", "p50", 1e-3, ratio=True), Column("p99", "p99", 1e-3)] +
                        [Column(stage, stage, 1e-3) for stage in STAGES])
    return results.exit_code()


if __name__ == "__main__":
    sys.exit(main())
