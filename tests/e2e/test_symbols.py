#!/usr/bin/env python3
"""Hundreds of thousands of new symbols at once: more than one message holds, more than a ring can define.

The rings fill before the sidecar starts, so its first frames have to carry nothing but symbols."""
import collections
import os

from stack import Stack, arguments, finish, wait_until

PRODUCERS, ROWS = 12, 60000

if __name__ == "__main__":
    options = arguments(__doc__)
    with Stack(options.build, sink=["--ndjson", "{dir}/rows"]) as stack:
        stack.stop_sidecar()
        producers = [stack.producer("--name", "producer-with-a-long-name-%02d" % i, "--rows", ROWS,
                                    "--symbols", ROWS) for i in range(PRODUCERS)]
        wait_until(lambda: len(stack.ring_files()) == PRODUCERS, "rings are there")
        stack.start_sidecar()
        for process in producers:
            assert finish(process, "producer")["acked"] == ROWS
        assert stack.stop_sidecar() == 0, stack.log_text()
        stack.sink.stop()
        seen = collections.Counter()
        for row in stack.sink.rows("rows"):
            values = row["row"]
            assert values["seq"] == seen[values["producer"]], row
            assert values["tag"] == "%s-%d" % (values["producer"], values["seq"]), row
            seen[values["producer"]] += 1
        assert set(seen.values()) == {ROWS} and len(seen) == PRODUCERS, seen
        print("%d rows, each with a symbol of its own" % sum(seen.values()))
