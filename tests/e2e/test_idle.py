#!/usr/bin/env python3
"""Parked with nothing to do, a sidecar with producers and a connection uses no CPU and is not woken; not either after rows
that came often, whose acknowledgements had waited for the next ones."""
import time

from stack import Stack, arguments, context_switches, cpu_ticks, wait_until

PRODUCERS, ROWS, SECONDS = 8, 1000, 10

if __name__ == "__main__":
    options = arguments(__doc__)
    # With metrics that nobody asks for.
    with Stack(options.build, sidecar=["--metrics", "127.0.0.1:0"]) as stack:
        producers = [stack.producer("--name", "p%d" % i, "--rows", ROWS, "--pause-us", 500, "--hold")
                     for i in range(PRODUCERS)]
        for process in producers:
            process.stdout.readline()  # its rows are acknowledged
        wait_until(lambda: stack.sink.summary()["rows"] == PRODUCERS * ROWS, "rows arrive")
        time.sleep(2)  # the last figures are written, spares are made
        pid = stack.sidecar.pid
        ticks, switches = cpu_ticks(pid), context_switches(pid)
        time.sleep(SECONDS)
        ticks, switches = cpu_ticks(pid) - ticks, context_switches(pid) - switches
        print("in %d s: %d ticks, %d context switches" % (SECONDS, ticks, switches))
        assert ticks == 0 and switches == 0
        assert len(stack.ring_files()) == PRODUCERS
