#!/usr/bin/env python3
"""Aim: each fault that qwp-sink --help promises happens, where it was asked for and nowhere else.

Method: a client by hand (qwp_client.py) provokes it and looks at what comes; the next connection,
or the time after "faults clear", must be as if nothing had been.

usage: test_sink_faults.py QWP_SINK
"""
import os
import socket
import ssl
import sys
import tempfile
import time

from qwp_client import LONG, NANOS, Client, block, build_message, longs
from sink_process import Sink


def message(first=0, count=1, table="t"):
    numbers = range(first, first + count)
    return build_message([block(
        table,
        [("n", LONG, longs(*numbers)), ("", NANOS, longs(*(10**18 + n for n in numbers)))],
        count,
    )])


class Tests:
    def __init__(self, program, directory):
        self.program, self.directory, self.serial = program, directory, 0

    def sink(self, *arguments):
        self.serial += 1
        self.here = os.path.join(self.directory, str(self.serial))
        return Sink(self.program, self.here, *[str(a).replace("@", self.here) for a in arguments])

    def client(self, sink, tls=False):
        client = Client(sink.port, sink.path("tls/ca.pem") if tls else None)
        client.sock.settimeout(30)
        return client

    def works(self, sink, tls=False):
        """A connection without faults."""
        client = self.client(sink, tls)
        client.upgrade()
        client.send(message())
        assert client.answer()[:2] == ("ok", 0)
        client.close()

    def ends(self, client):
        """Whether nothing comes but the end."""
        return client.at_end()

    def silent(self, client, seconds=0.2):
        """Nothing comes within that time, not even the end."""
        client.sock.settimeout(seconds)
        try:
            got = client.sock.recv(1)
            raise AssertionError("came: %r" % got)
        except TimeoutError:
            return True
        finally:
            client.sock.settimeout(30)

    def test_refuse_leaves_no_listener_and_gives_it_back(self):
        with self.sink() as sink:
            self.works(sink)
            sink.fault("refuse")
            deadline = time.monotonic() + 30
            while True:
                try:
                    self.client(sink).close()
                except ConnectionRefusedError:
                    break
                except ConnectionResetError:
                    pass  # it waited to be accepted when the listener went
                assert time.monotonic() < deadline
            sink.clear_faults()
            self.works(sink)

    def test_refuse_ends_by_itself(self):
        with self.sink("--fault", "refuse,for=200") as sink:
            deadline = time.monotonic() + 30
            while True:
                try:
                    self.works(sink)
                    break
                except (ConnectionRefusedError, ConnectionResetError, EOFError):
                    assert time.monotonic() < deadline

    def test_stalls_hold_each_phase_until_they_are_cleared(self):
        with self.sink("--tls-self-signed", "@/tls") as sink:
            for phase in ("accept", "tls"):
                sink.fault("stall=" + phase)
                raw = socket.create_connection(("127.0.0.1", sink.port), timeout=0.3)
                context = ssl.create_default_context(cafile=sink.path("tls/ca.pem"))
                try:
                    context.wrap_socket(raw, server_hostname="127.0.0.1")
                    raise AssertionError("a handshake although " + phase + " stalls")
                except TimeoutError:
                    pass
                raw.close()
                sink.clear_faults()
                self.works(sink, tls=True)
            sink.fault("stall=upgrade")
            client = self.client(sink, tls=True)
            client.sock.settimeout(0.3)
            try:
                client.upgrade()
                raise AssertionError("an answer")
            except TimeoutError:
                pass
            sink.clear_faults()
            self.works(sink, tls=True)

    def test_stalled_answers_come_once_the_fault_is_gone(self):
        with self.sink("--fault", "stall=answers,connection=0") as sink:
            client = self.client(sink)
            client.upgrade()
            client.send(message(0), message(1))
            assert self.silent(client)
            self.works(sink)
            assert sink.summary()["rows"] == 3  # read all the same
            sink.clear_faults()
            assert client.answer()[:2] == ("ok", 1)

    def test_stalled_reading_takes_nothing(self):
        with self.sink("--fault", "stall=reading,connection=0") as sink:
            client = self.client(sink)
            client.upgrade()
            client.send(message())
            assert self.silent(client) and sink.summary()["rows"] == 0
            sink.clear_faults()
            assert client.answer()[:2] == ("ok", 0)

    def test_closes_at_accept_at_upgrade_and_at_a_message(self):
        with self.sink("--fault", "close=accept,times=1") as sink:
            assert self.ends(self.client(sink))
            sink.fault("close=upgrade,times=1")
            client = self.client(sink)
            client.upgrade()
            assert self.ends(client)
            sink.fault("close=message,frame=1,times=1")
            client = self.client(sink)
            client.upgrade()
            client.send(message(0))
            assert client.answer()[:2] == ("ok", 0)
            client.send(message(1))
            assert self.ends(client)
            sink.fault("close=message,table=T,code=1009,times=1,text=too, big")
            client = self.client(sink)
            client.upgrade()
            client.send(message())
            assert client.receive() == (8, (1009).to_bytes(2, "big") + b"too, big")
            self.works(sink)
            assert sink.summary()["rows"] == 2 and sink.faults()["hits"] == 4

    def test_cuts_at_a_byte_of_either_direction(self):
        for tls in (False, True):
            with self.sink(*(["--tls-self-signed", "@/tls"] if tls else [])) as sink:
                sink.fault("cut=out,byte=40,times=1")
                raw = socket.create_connection(("127.0.0.1", sink.port), timeout=30)
                if tls:
                    try:
                        ssl.create_default_context(cafile=sink.path("tls/ca.pem")).wrap_socket(
                            raw, server_hostname="127.0.0.1")
                        raise AssertionError("a handshake in 40 bytes")
                    except (ssl.SSLError, OSError):
                        pass
                else:
                    client = Client.__new__(Client)
                    client.sock, client.pending = raw, b""
                    raw.sendall(client.upgrade_request())
                    got = b""
                    while True:
                        more = raw.recv(4096)
                        if not more:
                            break
                        got += more
                    assert len(got) == 40, got
                for reset in (0, 1):
                    sink.fault("cut=in,byte=2000,times=1,reset=%d" % reset)
                    client = self.client(sink, tls)
                    client.upgrade()
                    try:
                        for n in range(64):
                            client.send(message(n, 50))
                    except OSError:
                        pass
                    try:
                        while True:
                            client.receive()
                    except (EOFError, OSError):
                        pass
                self.works(sink, tls)
                assert sink.faults()["hits"] == 3

    def test_http_answers_with_status_header_and_text(self):
        with self.sink("--fault", "http=421,header=X-QuestDB-Role: REPLICA,times=1,text=not, me",
                       "--fault", "http=302,header=Location: http://localhost/,times=1") as sink:
            status, headers, body = self.client(sink).request()
            assert status == 421 and headers["x-questdb-role"] == "REPLICA" and body == b"not, me\n"
            status, headers, _ = self.client(sink).request()
            assert status == 302 and headers["location"] == "http://localhost/"
            self.works(sink)
            assert sink.summary()["refused"] == 2

    def test_upgrade_answers_are_spoilt(self):
        with self.sink("--fault", "upgrade=nonsense,times=1") as sink:
            client = self.client(sink)
            client.sock.sendall(client.upgrade_request())
            assert not client.read(64).startswith(b"HTTP")
            sink.fault("upgrade=oversized,times=1")
            client = self.client(sink)
            client.sock.sendall(client.upgrade_request())
            assert b"\r\n\r\n" not in client.read(1024 * 1024)
            client.close()
            sink.fault("upgrade=accept,times=1")
            try:
                self.client(sink).request()
                raise AssertionError("the right key")
            except AssertionError as wrong:
                assert "the right key" not in str(wrong)
            sink.fault("upgrade=version,times=1")
            assert self.client(sink).upgrade()["x-qwp-version"] == "9"
            sink.fault("upgrade=trickle,ms=1,times=1")
            assert self.client(sink).upgrade()["x-qwp-version"] == "1"
            self.works(sink)

    def test_cap_shrinks_for_a_connection(self):
        with self.sink("--fault", "cap=300,connection=1") as sink:
            for connection in range(3):
                client = self.client(sink)
                headers = client.upgrade()
                assert headers["x-qwp-max-batch-size"] == ("300" if connection == 1 else "2097138")
                client.send(message(0, 60))
                opcode, payload = client.receive()
                assert (opcode, payload[:2]) == ((8, b"\x03\xf1") if connection == 1
                                                 else (2, b"\0\0")), payload

    def test_acks_are_dropped_late_and_wrong(self):
        with self.sink() as sink:
            client = self.client(sink)
            client.upgrade()

            def exchange(fault, *answers):
                sink.fault(fault + ",times=1")
                client.send(message(self.sequence))
                for expected in answers:
                    got = client.answer()[:2]
                    assert got == ("ok", expected), (fault, got, expected)
                self.sequence += 1

            self.sequence = 0
            exchange("refuse,for=0", 0)
            exchange("ack=stale", 0, 1)
            exchange("ack=backwards,by=2", 2, 0)
            exchange("ack=negative", -1, 3)
            exchange("ack=beyond,by=7", 4 + 7)
            exchange("ack=late,ms=50", 5)
            exchange("ack=drop")
            assert self.silent(client)
            client.send(message(7))
            assert client.answer()[:2] == ("ok", 7)

    def test_control_frames_come_around_and_between(self):
        with self.sink("--fault", "control=ping,times=1") as sink:
            client = self.client(sink)
            client.upgrade()
            client.send(message(0))
            assert [client.receive()[0] for _ in range(3)] == [9, 2, 9]
            sink.fault("control=pong,times=1")
            client.send(message(1))
            assert [client.receive()[0] for _ in range(3)] == [10, 2, 10]
            sink.fault("control=fragment,times=1")
            client.send(message(2))
            heads, payload = [], b""
            for _ in range(3):
                first, length = client.read(2)
                part = client.read(length)
                heads.append(first)
                payload += part if first & 0x0F in (0, 2) else b""
            assert heads == [0x02, 0x89, 0x80] and payload[1] == 2, (heads, payload)

    def test_answers_are_spoilt(self):
        expected = {
            "oversized": b"\x82\x7f\0\0\x01\0\0\0\0\0",
            "short": b"\x82\x03\0\0\0",
            "text": b"\x81\x0b\0",
            "masked": b"\x82\x8b\0\0\0\0" + bytes(11),
            "reserved": b"\xc2\x0b\0",
            "ping": b"\x89\x7e\0\xc8",
        }
        with self.sink() as sink:
            for kind, start in expected.items():
                sink.fault("answer=%s,times=1" % kind)
                client = self.client(sink)
                client.upgrade()
                client.send(message())
                assert client.read(len(start)) == start, kind
                client.close()
            sink.fault("answer=nonsense,times=1")
            client = self.client(sink)
            client.upgrade()
            client.send(message())
            client.read(64)

    def test_keys_and_tickets_come_with_answers(self):
        with self.sink("--tls-self-signed", "@/tls", "--fault", "tls=keyupdate,times=3", "--fault",
                       "tls=ticket,skip=3") as sink:
            client = self.client(sink, tls=True)
            client.upgrade()
            for n in range(8):
                client.send(message(n))
                assert client.answer()[:2] == ("ok", n)
            hits = [fault["hits"] for fault in sink.faults()["faults"]]
            assert hits == [3, 2], hits

    def test_chance_is_the_seeds(self):
        met = []
        for seed in (7, 7, 8):
            with self.sink("--fault", "close=accept,chance=50", "--fault-seed", seed) as sink:
                pattern = ""
                for _ in range(24):
                    client = self.client(sink)
                    try:
                        client.upgrade()
                        pattern += "."
                    except (EOFError, OSError):
                        pattern += "x"
                    client.close()
                met.append(pattern)
        assert met[0] == met[1] != met[2] and "." in met[0] and "x" in met[0], met

    def test_what_is_no_fault_is_told_and_changes_nothing(self):
        with self.sink() as sink:
            for spec in ("", "nothing", "status", "status=256", "status=x", "stall", "stall=lunch",
                         "close=accept,times=0", "refuse,colour=red", "cut=in,byte=-1", "cap=0",
                         "http=99", "refuse,chance=101", "status=3,table=" + "x" * 200,
                         "status=3,text=" + "x" * 600):
                assert sink.ask("fault " + spec)["faults"] == [], spec
            for n in range(64):
                sink.fault("http=500,connection=%d" % (10 + n))
            assert len(sink.ask("fault refuse")["faults"]) == 64
            self.works(sink)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        tests = Tests(program, directory)
        for name in sorted(name for name in dir(tests) if name.startswith("test_")):
            print(name, flush=True)
            getattr(tests, name)()


if __name__ == "__main__":
    main()
