#!/usr/bin/env python3
"""The walk over several servers: whatever is wrong with the first, the next one gets the rows.

Each phase has a deadline of its own; roles, refusals and breaches go on at once; a server that accepts and
acknowledges nothing is not hammered, and not stayed with."""
import os
import socket
import subprocess
import sys
import time

from stack import Sink, Stack, arguments, finish, temporary_directory, wait_until

TIMES = "connect_timeout=300;auth_timeout_ms=300;reconnect_initial_backoff_millis=100;" \
        "reconnect_max_backoff_millis=400;"


class Deaf:
    """A port where connecting is answered by nobody: its queue of connections is full."""

    def __enter__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", self.port))
            self.waiting.append(client)
        return self

    def __exit__(self, *_):
        for client in self.waiting:
            client.close()
        self.listener.close()


def closed_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def reached(build, sinks, first, what, tls=False, conf=TIMES):
    """Rows arrive at the good server although `first` comes before it; the good one's counts."""
    bad, good = sinks
    roots = "tls_roots=%s;" % good.path("tls/ca.pem") if tls else ""
    text = "%s::addr=%s,localhost:%d;%s%s" % ("wss" if tls else "ws", first, good.port, roots, conf)
    before = good.summary()["rows"]
    start = time.monotonic()
    with Stack(build, conf_text=text) as stack:
        finish(stack.producer("--name", what, "--rows", 100), what)
        log = stack.log_text()
        assert stack.stop_sidecar() == 0
        assert good.summary()["rows"] == before + 100 and (bad is None or bad.summary()["rows"] == 0)
    print("  %s: %.2f s" % (what, time.monotonic() - start), flush=True)
    return log


def each_fault(build, directory, program, tls):
    flags = lambda name: ["--tls-self-signed", os.path.join(directory, name, "tls")] if tls else []  # noqa: E731
    with Sink(program, os.path.join(directory, "good"), *flags("good")) as good:
        # One authority for both.
        if tls:
            os.makedirs(os.path.join(directory, "bad"))
            subprocess.run(["cp", "-r", good.path("tls"), os.path.join(directory, "bad", "tls")], check=True)
        with Sink(program, os.path.join(directory, "bad"), *flags("bad")) as bad:
            faults = ["stall=accept", "stall=tls", "stall=upgrade", "close=accept", "close=upgrade",
                      "http=421,header=X-QuestDB-Role: REPLICA", "http=401", "http=403", "http=404", "http=503",
                      "http=302,header=Location: http://localhost/", "upgrade=nonsense",
                      "upgrade=oversized", "upgrade=accept", "upgrade=version", "upgrade=trickle,ms=100"]
            for fault in faults if not tls else ["stall=accept", "stall=tls", "close=accept", "upgrade=nonsense"]:
                bad.fault(fault)
                reached(build, (bad, good), "localhost:%d" % bad.port, fault.split(",")[0], tls)
                assert bad.faults()["hits"] > 0, fault
                bad.clear_faults()
            if not tls:
                for first, what in (("localhost:%d" % closed_port(), "refused"),
                                    ("no-such-host.invalid:9000", "unknown name"),
                                    ("[::1]:%d" % closed_port(), "IPv6, refused")):
                    reached(build, (bad, good), first, what)
                with Deaf() as deaf:
                    reached(build, (bad, good), "127.0.0.1:%d" % deaf.port, "no answer to TCP")


def ipv6(build, directory, program):
    try:
        with Sink(program, directory, "--listen", "[::1]:0") as sink:
            log = reached(build, (None, sink), "[::1]:%d" % sink.port, "IPv6")
            assert "endpoint=::1" in log, log
            found = socket.getaddrinfo("localhost", sink.port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            if any(family == socket.AF_INET6 for family, *_ in found):
                reached(build, (None, sink), "localhost:%d" % closed_port(), "IPv6 by name")
            else:
                print("  IPv6 by name: skipped, localhost is IPv4 alone here")
    except RuntimeError:
        print("  IPv6: skipped, this machine has none")


def name_server_is_silent(build, directory, program):
    """A name that nobody resolves, nor refuses: the resolver's own patience is many seconds."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0 \
            or not os.path.exists("/etc/resolv.conf"):
        print("  silent name server: skipped, no mount namespace of our own")
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent, Sink(program, directory) as good:
        try:
            silent.bind(("127.0.0.253", 53))
        except OSError as error:
            print("  silent name server: skipped,", error)
            return
        mine = os.path.join(directory, "resolv.conf")
        with open(mine, "w") as file:
            file.write("nameserver 127.0.0.253\noptions timeout:30 attempts:5\n")

        class Isolated(Stack):
            def sidecar_command(self):
                command = super().sidecar_command()
                user, group = [str(i) for i in (self.users[0], self.users[2])] if self.users else ("0", "0")
                return ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', mine,
                        "setpriv", "--reuid", user, "--regid", user, "--groups", group, *command]

        text = "ws::addr=questdb.example.org,127.0.0.1:%d;%s" % (good.port, TIMES)
        with Isolated(build, conf_text=text) as stack:
            finish(stack.producer("--name", "p0", "--rows", 100), "p0")
            assert "is not resolved within" in stack.log_text(), stack.log_text()
            assert stack.stop_sidecar() == 0
        assert good.summary()["rows"] == 100
    print("  silent name server")


def not_hammered(build, fault):
    """Six connections that bring no acknowledgement take at least a good part of the waits between them, and
    cause one line of log."""
    with Stack(build, sink=["--fault", fault], conf=TIMES) as stack:
        producer = stack.producer("--name", "p0", "--rows", 100)
        wait_until(lambda: stack.status()["rows_stored"] == 100, "rows are stored")
        before = len(stack.log_text())  # with nothing to send, a connection that is up is the end of an outage

        def count():
            return stack.sink.summary()["connections"]

        wait_until(lambda: count() >= 4, "the backoff has grown")
        start, first = time.monotonic(), count()
        wait_until(lambda: count() >= first + 8, "more connections")
        took = time.monotonic() - start
        print("  %s: 8 connections in %.2f s" % (fault.split(",")[0], took))
        assert took > 0.4, took  # eight waits of 0 to 400 ms: 1.6 s on average
        assert stack.log_text()[before:].count('msg="down"') <= 1, stack.log_text()
        stack.sink.clear_faults()
        finish(producer, "producer")
        assert stack.stop_sidecar() == 0
        log = stack.log_text()[before:]
        assert log.count('msg="back after ') == 1, log


def passed_on(build, directory, program):
    """Answers that name the server, not the rows, send them to the other one: NOT_WRITABLE always, a write
    error as on_write_error asks."""
    cases = (("status=12,text=read only", ""), ("status=9,text=disk full", "on_write_error=retriable_other;"))
    for number, (fault, policy) in enumerate(cases):
        with Sink(program, os.path.join(directory, "a%d" % number)) as a, \
                Sink(program, os.path.join(directory, "b%d" % number)) as b:
            a.fault(fault)
            text = "ws::addr=localhost:%d,localhost:%d;%s%s" % (a.port, b.port, TIMES, policy)
            with Stack(build, conf_text=text) as stack:
                finish(stack.producer("--name", "p0", "--rows", 100), "p0")
                shown = stack.status()
                assert a.faults()["hits"] > 0 and a.summary()["rows"] == 0, fault
                assert b.summary()["rows"] == 100 and shown["rows_rejected"] == 0, (fault, shown)
                assert stack.stop_sidecar() == 0
        print("  passed on: %s" % fault.split(",")[0])


def passed_on_before_rows(build, directory, program):
    """The same when the server refuses what registers the symbols again, before it sees a row."""
    with Sink(program, os.path.join(directory, "c")) as a, Sink(program, os.path.join(directory, "d")) as b:
        text = "ws::addr=localhost:%d,localhost:%d;%son_write_error=retriable_other;" % (a.port, b.port, TIMES)
        with Stack(build, conf_text=text) as stack:
            finish(stack.producer("--name", "p0", "--rows", 100), "p0")
            assert a.summary()["rows"] == 100
            a.fault("close=message,connection=0")
            a.fault("status=9,connection=1,message=0,text=disk full")
            finish(stack.producer("--name", "p1", "--rows", 100), "p1")
            shown = stack.status()
            assert a.summary()["rows"] == 100 and b.summary()["rows"] == 100, (a.summary(), b.summary())
            assert shown["rows_rejected"] == 0 and shown["server_errors"] > 0, shown
            assert stack.stop_sidecar() == 0


def first_connect(build, directory, program):
    """initial_connect_retry: a start that wants a server ends without one, and tells why."""
    port = closed_port()

    class Starting(Stack):
        def start_sidecar(self):
            self.sidecar = self.start(self.sidecar_command(), stderr=self.log)

    for threading in ("shared", "dedicated"):
        for conf, least_s in (("off", 0), ("sync;reconnect_max_duration_millis=700", 0.7)):
            text = "ws::addr=127.0.0.1:%d,127.0.0.1:%d;initial_connect_retry=%s;%s" % (port, closed_port(), conf, TIMES)
            start = time.monotonic()
            with Starting(build, conf_text=text, sidecar=["--threading", threading]) as stack:
                assert stack.sidecar.wait(60) == 1
                assert time.monotonic() - start >= least_s
                log = stack.log_text()
                assert "initial_connect_retry" in log and "refused" in log and '"ready"' not in log, log
        text = "ws::addr=127.0.0.1:%d;initial_connect_retry=on;%s" % (port, TIMES)
        with Starting(build, conf_text=text, sidecar=["--threading", threading]) as stack:
            wait_until(lambda: 'msg="down"' in stack.log_text(), "it tries")
            with Sink(program, os.path.join(directory, threading), "--listen", "127.0.0.1:%d" % port):
                wait_until(stack.is_ready, "it is ready once there is a server")
                finish(stack.producer("--name", "p0", "--rows", 10), "p0")
                assert stack.stop_sidecar() == 0


def not_stayed_with(build, directory, program):
    """A server that accepts, upgrades and closes comes first in each round; rows go to the other all the same,
    also when it was the good one that they went to before."""
    with Sink(program, os.path.join(directory, "a")) as a, Sink(program, os.path.join(directory, "b")) as b:
        text = "ws::addr=localhost:%d,localhost:%d;%s" % (a.port, b.port, TIMES)
        with Stack(build, conf_text=text) as stack:
            finish(stack.producer("--name", "p0", "--rows", 100), "p0")
            assert a.summary()["rows"] == 100
            a.fault("close=message,times=1")
            a.fault("close=message,code=1001")
            finish(stack.producer("--name", "p1", "--rows", 100), "p1")
            assert a.summary()["rows"] == 100 and b.summary()["rows"] == 100
            b.fault("http=503")
            b.fault("close=message")
            a.clear_faults()
            finish(stack.producer("--name", "p2", "--rows", 100), "p2")
            assert a.summary()["rows"] == 200 and b.summary()["rows"] == 100
            assert stack.stop_sidecar() == 0


if __name__ == "__main__":
    options = arguments(__doc__)
    program = os.path.join(os.path.abspath(options.build), "bin", "qwp-sink")
    with temporary_directory() as directory:
        for tls in (False, True):
            print("each fault, %s" % ("TLS" if tls else "plain"))
            each_fault(options.build, os.path.join(directory, str(tls)), program, tls)
        ipv6(options.build, os.path.join(directory, "ipv6"), program)
        name_server_is_silent(options.build, os.path.join(directory, "name"), program)
        print("first connect")
        first_connect(options.build, os.path.join(directory, "first"), program)
        print("not hammered")
        for fault in ("close=accept", "close=upgrade", "close=message", "http=503"):
            not_hammered(options.build, fault)
        print("not stayed with")
        not_stayed_with(options.build, directory, program)
        passed_on(options.build, os.path.join(directory, "passed"), program)
        passed_on_before_rows(options.build, os.path.join(directory, "before"), program)
    sys.exit(0)
