#!/usr/bin/env python3
"""A real QuestDB server, killed (kill -9) and started again five times while eight producers write: a table
with DEDUP UPSERT KEYS has exactly the rows that were written, a plain one misses none.

Besides QWP_REAL_SERVER=HOST:PORT this needs a way to kill that server and to start it:
QWP_REAL_SERVER_COMMAND=COMMAND, run with the word "kill" and the word "start". QWP_REAL_KILLS=N: so many times."""
import os
import random
import shlex
import signal
import subprocess
import sys
import time
import urllib.error

from real_server import server_or_skip, sql
from stack import Stack, arguments, finish, wait_until

PRODUCERS = 8
KILLS = int(os.environ.get("QWP_REAL_KILLS", "5"))
DEDUP, PLAIN = "seq_0", "seq_1"  # the tables of sequence_producer


def server(word):
    command = shlex.split(os.environ["QWP_REAL_SERVER_COMMAND"]) + [word]
    subprocess.run(command, check=word == "kill", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   timeout=300)


def answers():
    try:
        return sql("select 1") == [[1]]
    except OSError:
        return False


def make_tables():
    for table, dedup in ((DEDUP, " dedup upsert keys(timestamp, producer)"), (PLAIN, "")):
        sql('drop table if exists "%s"' % table)
        sql('create table "%s" (producer symbol, seq long, price double, tag symbol, timestamp timestamp_ns) '
            "timestamp(timestamp) partition by day wal%s" % (table, dedup))


def counts(table):
    """Of each producer: rows, different ones, the highest."""
    return {row[0]: tuple(row[1:]) for row in sql(
        'select producer, count(), count_distinct(seq), max(seq) from "%s"' % table)}


def check(table, published, exact):
    """Waits until the server shows what it has in its write-ahead log."""
    expected = {name: (rows, rows - 1) for name, rows in published.items()}

    def complete():
        try:
            return {name: row[1:] for name, row in counts(table).items()} == expected
        except urllib.error.URLError:
            return False

    try:
        wait_until(complete, "%s is complete" % table, 120)
    except AssertionError:
        raise AssertionError("%s: %s, not %s" % (table, counts(table), expected))
    rows, distinct = (sum(row[i] for row in counts(table).values()) for i in (0, 1))
    print("%s: %d rows, %d again" % (table, distinct, rows - distinct), flush=True)
    assert rows == distinct if exact else rows >= distinct, (rows, distinct)


def run(build, conf, rng):
    wait_until(answers, "the server answers", 300)
    make_tables()
    # Each message is a commit to the server, which costs it a lot: few of them, each with many rows.
    with Stack(build, conf_text=conf + "reconnect_max_backoff_millis=500;", sidecar=["--linger", "20ms"]) as stack:
        producers = [stack.producer("--name", "p%d" % i, "--forever", "--unit", 2, "--tables", 2, "--pause-us", 5000)
                     for i in range(PRODUCERS)]
        for _ in range(KILLS):
            acked = stack.status()["frames_acked"]
            wait_until(lambda: stack.status()["frames_acked"] > acked + 20, "rows go through", 120)
            time.sleep(rng.uniform(0.2, 2))
            server("kill")
            time.sleep(rng.uniform(0, 1))
            server("start")
            wait_until(answers, "the server answers", 300)
        acked = stack.status()["frames_acked"]
        wait_until(lambda: stack.status()["frames_acked"] > acked, "rows go through at last", 120)
        for process in producers:
            process.send_signal(signal.SIGTERM)
        figures = [finish(process, "producer") for process in producers]
        status = stack.status()
        assert stack.stop_sidecar() == 0
        print("%d kills, %d connects, %d frames sent, %d acknowledged" % (
            KILLS, status["connects"], status["frames_sent"], status["frames_acked"]))
        # Units of two: a row in each table.
        published = {figure["name"]: figure["published"] // 2 for figure in figures}
        check(DEDUP, published, exact=True)
        check(PLAIN, published, exact=False)


if __name__ == "__main__":
    options = arguments(__doc__)
    address = server_or_skip()
    if "QWP_REAL_SERVER_COMMAND" not in os.environ:
        print("skipped: set QWP_REAL_SERVER_COMMAND to what kills and starts the server")
        sys.exit(77)
    seed = int(os.environ.get("QWP_SEED", "0")) or random.randrange(1, 2**31)
    print("seed %d" % seed, flush=True)
    run(options.build, "ws::addr=%s;" % address, random.Random(seed))
