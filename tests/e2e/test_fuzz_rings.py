#!/usr/bin/env python3
"""Fuzzes a live sidecar through its rings: hostile producers (hostile_producer.c) do all they can to their own, beside four
good ones. The sidecar never crashes, hangs or lets garbage out to the server, and the good ones lose nothing. How much of
their rate they keep is measured against stretches in which the hostile ones stand still; it is judged when there are many of
those, and else printed, as it is the machine's affair too. Meant for a build with sanitizers.

QWP_FUZZ_CPU_S=600, QWP_SEED=N: longer (CPU seconds of the sidecar and the hostile ones), and elsewhere."""
import json
import os
import re
import signal
import statistics
import struct
import time

from stack import Stack, arguments, cpu_ticks, finish, users_wanted, wait_until

GOOD, HOSTILE = 4, 3
CPU_S = float(os.environ.get("QWP_FUZZ_CPU_S", "6"))
SEED = int(os.environ.get("QWP_SEED", str(time.time_ns() % 1000000)))
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
RATE_S = 2
TURNS = 4  # of rate(): in one of so many the hostile ones stand still
KEPT_MIN, JUDGED_FROM = 0.95, 20


def rows_published(stack):
    """Of each good producer, out of its ring (ipc/qwp_ring_layout.h)."""
    counts = {}
    for name in stack.ring_files():
        if name.startswith("good"):
            with open(os.path.join(stack.rings, "default", name), "rb") as file:
                counts[name] = struct.unpack_from("<Q", file.read(512), 264)[0]
    return counts


def rate(stack, seconds):
    before, started = rows_published(stack), time.monotonic()
    time.sleep(seconds)
    after, took = rows_published(stack), time.monotonic() - started
    assert len(after) == GOOD, after
    return sum(after[name] - before[name] for name in after) / took


def reasons(stack):
    """What rings were detached or refused for, numbers and names folded."""
    found = {}
    for text in re.findall(r'reason="((?:[^"\\]|\\.)*)"', stack.log_text()):
        text = re.sub(r"ring '[^']*'[:,]? ?", "", text)
        text = re.sub(r"'[^']*'", "'…'", re.sub(r"[0-9]+(x[0-9a-f]+)?", "N", text))[:90]
        found[text] = found.get(text, 0) + 1
    return found


def children_ticks(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[13]) + int(fields[14])


def apart():
    """A group of its own, lives included, to be stopped; what it takes of the CPU is not the question."""
    os.setpgid(0, 0)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def signal_groups(processes, number):
    for process in processes:
        os.killpg(process.pid, number)


def run(build):
    print("seed", SEED, flush=True)
    with Stack(build, sink=["--verify", "seq,producer"], sidecar=["--batch-rows", "2000"],
               conf="sf_max_segment_bytes=1m;sf_max_total_bytes=64m;", in_memory=not users_wanted()) as stack:
        good = [stack.producer("--name", "good%d" % i, "--forever", "--pause-us", 500, "--unit", 5)
                for i in range(GOOD)]
        wait_until(lambda: len(rows_published(stack)) == GOOD and
                   min(rows_published(stack).values()) > 100, "the good ones run")
        hostile = [stack.start([os.path.join(stack.tests, "hostile_producer"), "--rings", stack.rings,
                                "--name", "hostile%d" % i, "--seed", str(SEED * 100 + i)],
                               stdout=-1, text=True, preexec_fn=apart)
                   for i in range(HOSTILE)]
        alone, beside, acked, moved = [], [], 0, time.monotonic()
        while True:
            signal_groups(hostile, signal.SIGSTOP)
            try:
                alone.append(rate(stack, RATE_S))
            finally:
                signal_groups(hostile, signal.SIGCONT)
            beside += [rate(stack, RATE_S) for _ in range(TURNS - 1)]
            assert stack.sidecar.poll() is None, stack.log_text()[-6000:]
            now = stack.status()["rows_acked"]
            if now != acked:
                acked, moved = now, time.monotonic()
            assert time.monotonic() - moved < 60, "nothing was acknowledged for a minute"
            spent = cpu_ticks(stack.sidecar.pid) + sum(children_ticks(p.pid) for p in hostile)
            if spent * TICK_S >= CPU_S:
                break
        for process in hostile:
            process.send_signal(signal.SIGTERM)
        lives = [json.loads(process.communicate(timeout=60)[0]) for process in hostile]
        for process in good:
            process.send_signal(signal.SIGTERM)
        published = 0
        for process in good:
            figures = finish(process, "a good producer")
            assert figures["acked"] == figures["published"] > 0, figures
            published += figures["published"]
        wait_until(lambda: not any(name.startswith("good") for name in stack.ring_files()),
                   "the good ones' rings are removed")
        sidecar_s = cpu_ticks(stack.sidecar.pid) * TICK_S
        assert stack.stop_sidecar() in (0, 3), stack.log_text()[-6000:]
        log = stack.log_text()
        assert "Sanitizer" not in log and "runtime error" not in log, log[-6000:]
        found = reasons(stack)
        summary = stack.sink.stop()
        tables = {name: rows for name, rows in summary["tables"].items() if name == "seq_0"}
        assert tables == {"seq_0": published}, (tables, published)
        assert summary["lost"] + summary["doubled"] + summary["disordered"] == 0, summary
        assert summary["errors"] == 0, summary
        kept = statistics.median(beside) / statistics.median(alone)
        ends = {of: sum(life[of] for life in lives) for of in ("lives", "detached", "refused", "cpu_s")}
        print("%.0f CPU s of the sidecar, %.0f of %d hostile lives, %d of them detached; good ones kept %.3f of their "
              "rate (medians of %d and %d times %d s: %.0f and %.0f rows/s), %d rows" % (
                  sidecar_s, ends["cpu_s"], ends["lives"], ends["detached"], kept, len(beside), len(alone), RATE_S,
                  statistics.median(beside), statistics.median(alone), published))
        for text, count in sorted(found.items(), key=lambda item: -item[1]):
            print("%7d  %s" % (count, text))
        assert ends["refused"] == 0, "rows of hostile producers were refused before they did any harm"
        assert found and ends["detached"] > ends["lives"] / 4, "harm was hardly ever noticed: %s, %s" % (ends, found)
        assert kept >= KEPT_MIN or len(alone) < JUDGED_FROM, kept


if __name__ == "__main__":
    run(arguments(__doc__).build)
