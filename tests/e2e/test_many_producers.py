#!/usr/bin/env python3
"""64 producer processes over one connection: nothing lost, nothing doubled, order kept.

The sink checks the sequence of every producer and table."""
from stack import Stack, arguments, finish, wait_until

PRODUCERS, ROWS, TABLES = 64, 100000, 3


def run(build, threading):
    with Stack(build, sink=["--verify", "seq,producer"],
               sidecar=["--threading", threading]) as stack:
        producers = [stack.producer("--name", "p%02d" % i, "--rows", ROWS, "--tables", TABLES)
                     for i in range(PRODUCERS)]
        for process in producers:
            figures = finish(process, "producer")
            assert figures["published"] == figures["stored"] == figures["acked"] == ROWS, figures
        wait_until(lambda: stack.ring_files() == [], "rings of dead producers are removed")
        status = stack.status()
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        print(threading, summary)
        assert summary["rows"] == PRODUCERS * ROWS, summary
        assert sorted(summary["tables"]) == ["seq_0", "seq_1", "seq_2"], summary
        for trouble in ("lost", "doubled", "disordered", "errors"):
            assert summary[trouble] == 0, summary
        assert status["rows_acked"] == PRODUCERS * ROWS, status


if __name__ == "__main__":
    options = arguments(__doc__)
    run(options.build, "shared")
    run(options.build, "dedicated")
