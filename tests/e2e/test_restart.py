#!/usr/bin/env python3
"""Ends and beginnings: a server that comes back, a token that is corrected, SIGTERM without a server."""
import os
import signal
import struct
import time

from stack import Stack, arguments, finish, wait_until


def server_comes_back(build):
    """Rows written while the server is away arrive when it is there again."""
    with Stack(build, sink=["--verify", "seq,producer"], conf="reconnect_max_backoff_millis=200;") as stack:
        port = stack.sink.port
        before = stack.producer("--name", "p0", "--rows", 1000)
        finish(before, "producer")
        stack.sink.stop()
        away = stack.producer("--name", "p1", "--rows", 5000)
        wait_until(lambda: stack.status()["rows_stored"] == 6000, "rows are stored")
        wait_until(lambda: stack.status()["connection"] != "up", "it is noticed")
        shown = stack.status()
        assert shown["rows_acked"] == 1000
        # The outage is as old as it is, however often it is tried.
        wait_until(lambda: stack.status()["connect_attempts"] > shown["connect_attempts"] + 2, "it is tried")
        assert stack.status()["connection_since_us"] == shown["connection_since_us"], shown
        stack.start_sink("127.0.0.1:%d" % port)
        finish(away, "producer")
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["rows"] == 5000 and summary["lost"] + summary["doubled"] == 0, summary
        log = stack.log_text()
        assert log.count('msg="down"') == 1 and log.count('msg="back after ') == 1, log


def end_without_server(build):
    """SIGTERM waits as long as it may, tells by its exit code, and the next start delivers."""
    with Stack(build, sink=["--verify", "seq,producer"],
               conf="close_flush_timeout_millis=300;reconnect_max_backoff_millis=200;") as stack:
        port = stack.sink.port
        stack.sink.stop()
        producer = stack.producer("--name", "p0", "--rows", 2000)
        wait_until(lambda: stack.status()["rows_stored"] == 2000, "rows are stored")
        assert stack.stop_sidecar() == 3
        stack.start_sink("127.0.0.1:%d" % port)
        stack.start_sidecar()
        figures = finish(producer, "producer")
        assert figures["acked"] == 2000, figures
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["rows"] == 2000 and summary["lost"] + summary["doubled"] == 0, summary


def rows_published(stack, ring):
    """The producer's own count, out of its ring (ipc/qwp_ring_layout.h)."""
    with open(os.path.join(stack.rings, "default", ring), "rb") as file:
        return struct.unpack_from("<Q", file.read(512), 264)[0]


def producer_dies_while_closing(build):
    """What a producer publishes to a sidecar that is closing, and then dies, is the next one's."""
    with Stack(build, sink=["--verify", "seq,producer"],
               conf="close_flush_timeout_millis=2000;reconnect_max_backoff_millis=200;") as stack:
        port = stack.sink.port
        stack.sink.stop()
        producer = stack.producer("--name", "p0", "--rows", 1000000, "--pause-us", 500)
        wait_until(lambda: stack.status()["rows_stored"] > 10, "rows are stored")
        stack.sidecar.send_signal(signal.SIGTERM)
        wait_until(lambda: 'msg="closing' in stack.log_text(), "the signal is seen")
        ring, = stack.ring_files()
        rows = rows_published(stack, ring)
        wait_until(lambda: rows_published(stack, ring) > rows + 10, "rows come after the signal")
        producer.send_signal(signal.SIGSTOP)
        wait_until(lambda: "T (stopped)" in open("/proc/%d/status" % producer.pid).read(), "it stops")
        rows = rows_published(stack, ring)
        producer.kill()
        producer.wait()
        assert stack.sidecar.wait(60) == 3
        stack.start_sink("127.0.0.1:%d" % port)
        stack.start_sidecar()
        wait_until(lambda: stack.status()["rows_acked"] >= rows or not stack.ring_files(), "drained")
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["rows"] == rows and summary["lost"] + summary["doubled"] == 0, (rows, summary)


def killed_and_back(build):
    """kill -9, and 5 s without a sidecar: producers go on writing, see that nobody is there, and lose nothing."""
    away_s, count = 5, 4
    with Stack(build, sink=["--verify", "seq,producer"]) as stack:
        producers = [stack.producer("--name", "p%d" % i, "--forever", "--pause-us", 2000, "--states")
                     for i in range(count)]
        wait_until(lambda: stack.status()["rows_acked"] > 100 * count, "rows arrive")
        stack.sidecar.kill()
        stack.sidecar.wait()
        before = {ring: rows_published(stack, ring) for ring in stack.ring_files()}
        assert len(before) == count
        time.sleep(away_s)
        for ring, rows in before.items():
            assert rows_published(stack, ring) > rows + 500, "it did not go on writing"
        stack.start_sidecar()
        mark = {ring: rows_published(stack, ring) for ring in before}
        wait_until(lambda: all(rows_published(stack, ring) > mark[ring] + 100 for ring in mark), "they go on")
        total = 0
        for process in producers:
            process.send_signal(signal.SIGTERM)
            figures = finish(process, "producer")
            assert figures["acked"] == figures["published"] and figures["full_waits"] == 0, figures
            # "n" first only for one that was there before anyone looked at its ring.
            assert figures["states"].lstrip("n") == "rnr", figures
            total += figures["published"]
        wait_until(lambda: stack.ring_files() == [], "rings are removed")
        assert stack.stop_sidecar() == 0, stack.log_text()
        summary = stack.sink.stop()
        # What was sent and not yet acknowledged when it was killed comes again.
        assert summary["rows"] - summary["doubled"] == total, (summary, total)
        assert summary["lost"] + summary["repeated"] + summary["disordered"] == 0, summary


def second_signal(build):
    """A second SIGTERM does not wait."""
    with Stack(build) as stack:
        stack.sink.stop()
        stack.producer("--name", "p0", "--rows", 10)
        wait_until(lambda: stack.status()["rows_stored"] == 10, "rows are stored")
        stack.sidecar.send_signal(signal.SIGTERM)
        wait_until(lambda: 'msg="closing' in stack.log_text(), "the first signal is seen")
        assert stack.sidecar.poll() is None
        assert stack.stop_sidecar() == 3


def corrected_token(build):
    """A wrong token stops nothing but the sending; the corrected one is taken at SIGHUP."""
    with Stack(build, sink=["--token", "right"], conf="token_file={dir}/token;") as stack:
        producer = stack.producer("--name", "p0", "--rows", 100)
        wait_until(lambda: "401" in stack.status()["last_error"], "the refusal is shown")
        wait_until(lambda: stack.status()["rows_stored"] == 100, "rows are stored")
        with open(os.path.join(stack.directory, "token"), "w") as file:
            file.write("right\n")
        stack.sidecar.send_signal(signal.SIGHUP)
        finish(producer, "producer")
        assert stack.stop_sidecar() == 0
        assert "right" not in stack.log_text()


if __name__ == "__main__":
    options = arguments(__doc__)
    for scenario in (server_comes_back, end_without_server, producer_dies_while_closing, killed_and_back,
                     second_signal, corrected_token):
        scenario(options.build)
        print(scenario.__name__, "ok")
