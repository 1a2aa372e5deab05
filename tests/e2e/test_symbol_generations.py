#!/usr/bin/env python3
"""The dictionary of the store goes on from generation to generation: with the server there, without it and
after restarts, in memory and on disk, on one thread and on two, every row arrives once, in order, with its
own symbol; slots that are delivered go; and a producer with no end of symbols holds nobody up.

QWP_GENERATIONS_ROWS=N: so many rows for each of the four producers; 300,000 with the default limits are
more than a million symbols."""
import json
import os

from stack import Stack, arguments, finish, wait_until

PRODUCERS = 4
ROWS = int(os.environ.get("QWP_GENERATIONS_ROWS", "6000"))
LIMITS = [] if ROWS >= 300000 else ["--generation-symbols", "2000"]
DISK = "sf_dir={dir}/sf;sender_id=own;sf_max_segment_bytes=64k;reconnect_max_backoff_millis=100;"
MEMORY = "sf_max_segment_bytes=64k;sf_max_total_bytes=1g;reconnect_max_backoff_millis=100;"


def start_producers(stack):
    return [stack.producer("--name", "p%d" % i, "--rows", ROWS, "--symbols", ROWS)
            for i in range(PRODUCERS)]


def check(stack):
    names = ["p%d" % i for i in range(PRODUCERS)]
    seen = {name: 0 for name in names}
    with open(stack.sink.path("rows")) as lines:
        for line in lines:
            value = json.loads(line)["row"]
            name = value["producer"]
            assert value["seq"] == seen[name], (value, seen[name])
            assert value["tag"] == "%s-%d" % (name, value["seq"]), value
            seen[name] += 1
    assert set(seen.values()) == {ROWS}, seen


def slots(stack):
    return sorted(name for name in os.listdir(os.path.join(stack.directory, "sf"))
                  if name.startswith("own"))


def inspect(stack, name):
    out = stack.tool("inspect", os.path.join(stack.directory, "sf", name), "--json")
    return json.loads(out.stdout)


def with_server(build):
    """Switches under load, each with a connection of its own."""
    for threading, conf in (("shared", DISK), ("dedicated", MEMORY)):
        with Stack(build, sink=["--ndjson", "{dir}/rows"], conf=conf,
                   sidecar=["--threading", threading, *LIMITS]) as stack:
            for process in start_producers(stack):
                finish(process, "producer")
            wait_until(lambda: stack.ring_files() == [], "rings are drained")
            shown = stack.status()
            switches = stack.log_text().count('msg="next generation of the dictionary"')
            assert switches >= 2 and shown["connects"] > 2, (switches, shown)
            if conf == DISK:
                wait_until(lambda: len(slots(stack)) <= 3, "delivered slots go")
            assert stack.stop_sidecar() == 0, stack.log_text()
            stack.sink.stop()
            check(stack)
            print("%s: %d generations, %d connections" % (threading, switches + 1, shown["connects"]))


def without_server(build):
    """Several generations wait, over a kill -9; then they are delivered oldest first."""
    with Stack(build, sink=["--ndjson", "{dir}/rows"], conf=DISK, sidecar=LIMITS) as stack:
        port = stack.sink.port
        stack.sink.stop()
        producers = start_producers(stack)
        wait_until(lambda: stack.status()["rows_stored"] >= PRODUCERS * ROWS // 2, "rows are stored")
        stack.stop_sidecar(9)
        stack.start_sidecar()
        wait_until(lambda: sum(p["rows_stored"] for p in stack.status()["producers"]) ==
                   PRODUCERS * ROWS, "all rows are stored")
        waiting = slots(stack)
        assert len(waiting) >= 3, waiting
        for name in waiting:
            shown = inspect(stack, name)
            assert shown["damage"] == [], (name, shown["damage"])
        stack.stop_sidecar(9)
        stack.start_sink("127.0.0.1:%d" % port)
        stack.start_sidecar()
        for process in producers:
            finish(process, "producer")
        wait_until(lambda: stack.ring_files() == [], "rings are drained")
        wait_until(lambda: len(slots(stack)) <= 3, "delivered slots go")
        assert stack.stop_sidecar() == 0, stack.log_text()
        stack.sink.stop()
        check(stack)
        print("%d generations waited" % len(waiting))


def greedy(build):
    """One producer has a new symbol in each row, and may bring 300 to a generation: the others are done long
    before it, in the generations that it shares with them."""
    with Stack(build, sink=["--ndjson", "{dir}/rows"], conf=MEMORY,
               sidecar=["--linger", "0", "--generation-symbols", "2000",
                        "--producer-symbols", "300"]) as stack:
        rows = 1200
        bad = stack.producer("--name", "greedy", "--rows", rows, "--symbols", rows)
        wait_until(lambda: any(p["symbol_waits"] > 0 for p in stack.status()["producers"]),
                   "the greedy one waits")
        good = [stack.producer("--name", "p%d" % i, "--rows", 5000, "--symbols", 20) for i in range(3)]
        for process in good:
            finish(process, "producer")
        assert bad.poll() is None, "the greedy one was not held"
        shown = [p for p in stack.status()["producers"] if p["name"] == "greedy"][0]
        assert shown["rows_stored"] < rows, shown
        finish(bad, "greedy producer")
        wait_until(lambda: stack.ring_files() == [], "rings are drained")
        assert stack.stop_sidecar() == 0, stack.log_text()
        stack.sink.stop()
        seen = [row["row"]["seq"] for row in stack.sink.rows("rows")
                if row["row"]["producer"] == "greedy"]
        assert seen == list(range(rows)), len(seen)


if __name__ == "__main__":
    options = arguments(__doc__)
    scenarios = (with_server, without_server) if ROWS >= 300000 else (with_server, without_server, greedy)
    for scenario in scenarios:
        scenario(options.build)
        print(scenario.__name__, "ok")
