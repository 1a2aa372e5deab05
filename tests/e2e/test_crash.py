#!/usr/bin/env python3
"""kill -9 of the sidecar, at every crash point and at random moments, with producers writing throughout.

Without a server nothing is ever replayed, so when one comes at last, each row that was published is there
once, in order, with its symbol. With a server a killed sidecar may not have recorded an acknowledgement:
then rows may come twice, and still none is lost or wrong.

QWP_CRASH_FULL=1, QWP_RANDOM_KILLS=500, QWP_SEED=N: longer, and elsewhere. QWP_CRASH_SHORT=1: a few points. With QWP_CRASH_FULL and
QWP_REAL_SERVER also against a real server, into a table that tells repetitions (DEDUP UPSERT KEYS)."""
import collections
import glob
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import real_server
from stack import Stack, arguments, wait_until

PRODUCERS, SYMBOLS = 4, 50000  # so that new symbols come all along
RANDOM_KILLS = int(os.environ.get("QWP_RANDOM_KILLS", "10"))
SEED = int(os.environ.get("QWP_SEED", "7"))
# Small segments rotate often.
CONF = "sf_max_segment_bytes=64k;sf_max_total_bytes=1g;reconnect_max_backoff_millis=100;"
DISK = "sf_dir={dir}/sf;sender_id=crash;sf_durability=periodic;sf_sync_interval_millis=50;"
FULL = bool(os.environ.get("QWP_CRASH_FULL"))
NTH = (1, 2, 7, 30) if FULL else (3,)


def crash_points():
    """Every name in the sources."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    names = set()
    for folder in ("core", "sidecar"):
        for path in glob.glob(os.path.join(root, folder, "**", "*.c"), recursive=True):
            with open(path) as file:
                names.update(re.findall(r'QWP_CRASH_POINT\("([^"]+)"\)', file.read()))
    return sorted(names)[::8 if os.environ.get("QWP_CRASH_SHORT") else 1]


# Several switches of the dictionary within a life; where new ones come so fast, few of a producer may wait.
LIMITS = ["--generation-symbols", "3000", "--producer-symbols", "3000"]


def start_producers(stack):
    return [stack.producer("--name", "p%d" % i, "--forever", "--unit", 3, "--pause-us", 5000 if FULL else 500,
                           "--symbols", SYMBOLS) for i in range(PRODUCERS)]


def life(stack, point, nth, seconds, once_ready=False):
    """One life of a sidecar: it dies at a crash point, or is killed after a while, counted from its start
    or from when it is ready."""
    if point is not None:
        os.environ["QWP_CRASH_AT"] = "%s:%d" % (point, nth)
    try:
        stack.sidecar = stack.start(stack.sidecar_command(), stderr=stack.log)
    finally:
        os.environ.pop("QWP_CRASH_AT", None)
    if once_ready:
        wait_until(lambda: stack.sidecar.poll() is not None or stack.is_ready(), "sidecar starts")
    try:
        stack.sidecar.wait(seconds)
    except subprocess.TimeoutExpired:
        stack.sidecar.kill()
        stack.sidecar.wait()
        return False
    assert stack.sidecar.returncode == -signal.SIGKILL, stack.log_text()[-3000:]
    return True


def check(rows, published, exact):
    seen = collections.defaultdict(list)
    for row in rows:
        value = row["row"]
        assert value["tag"] == "%s-%d" % (value["producer"], value["seq"] % SYMBOLS), row
        seen[value["producer"]].append(value["seq"])
    for name, count in published.items():
        assert set(seen[name]) == set(range(count)), "%s: %d of %d rows" % (
            name, len(set(seen[name])), count)
        if exact:
            assert seen[name] == list(range(count)), name + ": doubled or disordered"
    return sum(map(len, seen.values())) - sum(published.values())


def sweep(stack):
    """Every point in turn, then random moments. Returns which points were reached."""
    rng = random.Random(SEED)
    reached = {}
    for point in crash_points():
        for nth in (1,) if point.startswith("open.") else NTH:  # passed once a start
            reached[point] = life(stack, point, nth, 1.0) or reached.get(point, False)
        if FULL:  # many of these lives take no row, and producers wait for 30 s at most
            life(stack, None, 0, 0.3, once_ready=True)
    for _ in range(RANDOM_KILLS):
        life(stack, None, 0, rng.uniform(0.001, 0.3), once_ready=rng.random() < 0.8)
    return reached


def wind_up(stack, producers):
    """A last sidecar delivers everything. Returns what each producer published."""
    stack.start_sidecar()
    for process in producers:
        process.send_signal(signal.SIGTERM)
    published = {}
    for i, process in enumerate(producers):
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out
        published["p%d" % i] = int(re.search(r'"published":(\d+)', out).group(1))
    wait_until(lambda: stack.ring_files() == [], "rings are drained and removed")
    assert stack.stop_sidecar() == 0, stack.log_text()[-3000:]
    return published


def run(build, with_server, sidecar=(), conf=""):
    # The first sidecar only finds a free port for the sink.
    with Stack(build, sink=["--ndjson", "{dir}/rows"], sidecar=[*LIMITS, *sidecar],
               conf=CONF + conf) as stack:
        port = stack.sink.port
        stack.stop_sidecar()
        if not with_server:
            stack.sink.stop()
        producers = start_producers(stack)
        reached = sweep(stack)
        if not with_server:
            stack.start_sink("127.0.0.1:%d" % port)
        published = wind_up(stack, producers)
        stack.sink.stop()
        with open(stack.sink.path("rows")) as lines:
            extra = check(map(json.loads, lines), published, exact=not with_server)
        print("%s server: %d rows, %d again, of %d crash points not reached: %s" % (
            "with" if with_server else "without", sum(published.values()), extra, len(reached),
            [name for name, hit in reached.items() if not hit] or "none"))
        return reached


def run_real(build):
    real_server.sql("drop table if exists seq_0")
    real_server.sql("create table seq_0 (producer symbol, seq long, price double, tag symbol, timestamp "
                    "timestamp_ns) timestamp(timestamp) partition by day wal "
                    "dedup upsert keys(timestamp, producer)")
    for name, conf in real_server.connect_strings():
        with Stack(build, sidecar=LIMITS, conf_text=conf + CONF) as stack:
            stack.stop_sidecar()
            producers = start_producers(stack)
            sweep(stack)
            published = wind_up(stack, producers)
            real_server.wait_rows("seq_0", sum(published.values()))
            for producer, count in published.items():
                seen = real_server.sql(
                    "select count(), count_distinct(seq), min(seq), max(seq) from seq_0 where "
                    "producer = '%s' and tag = concat(producer, '-', cast(seq %% %d as string))" % (
                        producer, SYMBOLS))[0]
                assert seen == [count, count, 0, count - 1], (producer, count, seen)
            real_server.sql("drop table seq_0")
            print("real server, %s: %d rows" % (name, sum(published.values())))
            break


if __name__ == "__main__":
    options = arguments(__doc__)
    print("seed", SEED)
    reached = run(options.build, with_server=False)
    for name, hit in run(options.build, with_server=True, conf=DISK).items():
        reached[name] = reached[name] or hit
    if FULL and os.environ.get("QWP_REAL_SERVER"):
        run_real(options.build)
    missed = [name for name, hit in reached.items() if not hit]
    if missed:
        print("never reached:", missed)
    sys.exit(0)
