#!/usr/bin/env python3
"""An outage with hundreds of attempts, of all kinds, leaves a handful of lines in the log: one when it begins,
one when it is over with how long it took and what waits, few in between.

QWP_OUTAGE_SECONDS=600: the real thing (6)."""
import os
import random
import re
import time

from stack import Stack, arguments, finish, wait_until

SECONDS = float(os.environ.get("QWP_OUTAGE_SECONDS", "6"))
LINES_MAX = 20
FAULTS = ["refuse", "stall=upgrade", "stall=accept", "close=accept", "close=upgrade", "close=message", "http=503",
          "http=401", "http=421", "upgrade=nonsense", "cut=out,byte=100", "cut=in,byte=300", "answer=text"]


if __name__ == "__main__":
    options = arguments(__doc__)
    rng = random.Random(3)
    with Stack(options.build, sink=["--verify", "seq,producer"],
               conf="reconnect_initial_backoff_millis=1;reconnect_max_backoff_millis=20;auth_timeout_ms=200;") as stack:
        finish(stack.producer("--name", "before", "--rows", 100), "before")
        before = stack.log_text()
        producer = stack.producer("--name", "p0", "--forever", "--pause-us", 2000)
        wait_until(lambda: stack.status()["rows_acked"] > 100, "rows go through")
        start = time.monotonic()
        stack.sink.fault("close=message,code=1011")  # nothing gets through, whatever else
        while time.monotonic() < start + SECONDS:
            stack.sink.ask("fault %s,for=%d" % (rng.choice(FAULTS), rng.randrange(100, 400)))
            time.sleep(rng.uniform(0.1, 0.4))
        connections = stack.sink.summary()["connections"]
        stack.sink.clear_faults()
        producer.terminate()
        finish(producer, "producer")
        assert stack.stop_sidecar() == 0
        lines = [line for line in stack.log_text()[len(before):].splitlines() if line]
        about = [line for line in lines if re.search(r'msg="(down|still down|back|connected)', line)]
        print("%.0f s, %d connections, %d lines:" % (SECONDS, connections, len(lines)))
        print("\n".join(line[:200] for line in about))
        assert len(lines) <= LINES_MAX, "\n".join(lines)
        assert sum('msg="down"' in line for line in lines) == 1, lines
        back = [line for line in lines if re.search(r'msg="back after .*with .*waiting"', line)]
        assert len(back) == 1, lines
        took, waiting = map(int, re.search(r"after_s=(\d+) frames_waiting=(\d+)", back[0]).groups())
        assert took >= int(SECONDS) - 1 and waiting > 0, back
        summary = stack.sink.stop()
        assert summary["lost"] == summary["repeated"] == 0, summary
