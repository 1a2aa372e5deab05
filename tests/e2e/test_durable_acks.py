#!/usr/bin/env python3
"""request_durable_ack=on: rows count when the server says that they are durable, not before."""
from stack import Stack, arguments, finish, wait_until

ROWS = 3000


def pings_bring_them(build):
    """The server says it only when asked, so the keep-alive pings must ask; nothing is sent twice."""
    with Stack(build, sink=["--verify", "seq,producer", "--durable-on-ping"],
               conf="request_durable_ack=on;durable_ack_keepalive_interval_millis=20;") as stack:
        producers = [stack.producer("--name", "p%d" % i, "--rows", ROWS, "--tables", 5)
                     for i in range(2)]
        for producer in producers:
            assert finish(producer, "producer")["acked"] == ROWS
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["rows"] == 2 * ROWS and summary["lost"] + summary["doubled"] == 0, summary


def ok_alone_settles_nothing(build):
    """Taken by the server, but not durable: after a restart the rows are sent again."""
    with Stack(build, sink=["--verify", "seq,producer", "--durable-on-ping"],
               conf="request_durable_ack=on;durable_ack_keepalive_interval_millis=0;"
                    "close_flush_timeout_millis=100;") as stack:
        producer = stack.producer("--name", "p0", "--rows", ROWS)
        wait_until(lambda: stack.sink.summary()["rows"] == ROWS, "the server has the rows")
        assert stack.status()["rows_acked"] == 0
        assert stack.stop_sidecar() == 3
        stack.conf = "request_durable_ack=on;durable_ack_keepalive_interval_millis=20;"
        stack.start_sidecar()
        assert finish(producer, "producer")["acked"] == ROWS
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["lost"] == 0 and summary["doubled"] == ROWS, summary


def missing_echo_is_told(build):
    """A server that does not offer it gets no rows; the reason is shown; the right one gets them."""
    with Stack(build, sink=["--verify", "seq,producer"],
               conf="request_durable_ack=on;reconnect_max_backoff_millis=200;") as stack:
        port = stack.sink.port
        producer = stack.producer("--name", "p0", "--rows", ROWS)
        wait_until(lambda: stack.status()["rows_stored"] == ROWS, "rows are stored")
        wait_until(lambda: "durable" in stack.status()["last_error"], "the reason is shown")
        assert stack.status()["connection"] != "up" and stack.status()["rows_acked"] == 0
        assert stack.sink.stop()["rows"] == 0
        stack.sink_arguments.append("--durable")
        stack.start_sink("127.0.0.1:%d" % port)
        assert finish(producer, "producer")["acked"] == ROWS
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["rows"] == ROWS and summary["lost"] + summary["doubled"] == 0, summary
        assert stack.log_text().count('msg="down"') == 1, stack.log_text()


def main():
    options = arguments(__doc__)
    pings_bring_them(options.build)
    ok_alone_settles_nothing(options.build)
    missing_echo_is_told(options.build)


if __name__ == "__main__":
    main()
