#!/usr/bin/env python3
"""Aim: qwp-sink takes what a QuestDB server takes, refuses what it refuses, and tells the truth
about it.

Method: a client by hand (qwp_client.py) sends recorded and built messages, right and wrong ones,
plain and over TLS, and compares answers, summaries and rows.

usage: test_sink.py QWP_SINK DATA_DIR
"""
import glob
import json
import os
import pathlib
import struct
import sys
import tempfile
import time

from qwp_client import (
    DEFER,
    DELTA,
    DOUBLE,
    LONG,
    NANOS,
    SYMBOL,
    Client,
    block,
    build_message,
    longs,
    varint,
)
from sink_process import Sink

PARSE_ERROR, WRITE_ERROR, DICTIONARY_GAP = 0x05, 0x09, 0x0D


def recorded(data):
    for path in sorted(glob.glob(os.path.join(data, "client-messages", "*.hex"))):
        yield bytes.fromhex(pathlib.Path(path).read_text().replace("\n", ""))


def rows_of(table, first, count):
    """A message of `count` rows: n counts from `first`."""
    numbers = list(range(first, first + count))
    return block(
        table,
        [("n", LONG, longs(*numbers)), ("", NANOS, longs(*(10**18 + n for n in numbers)))],
        count,
    )


class Riding:
    """A socket that sends `ride` in one piece with whatever is sent first."""

    def __init__(self, sock, ride):
        self.sock, self.ride = sock, ride

    def sendall(self, raw):
        self.sock.sendall(raw + self.ride)
        self.ride = b""

    def __getattr__(self, name):
        return getattr(self.sock, name)


class Tests:
    def __init__(self, program, data, directory):
        self.program = program
        self.data = data
        self.directory = directory
        self.serial = 0

    def sink(self, *arguments):
        self.serial += 1
        self.here = os.path.join(self.directory, str(self.serial))
        return Sink(self.program, self.here, *[str(a).replace("@", self.here) for a in arguments])

    def test_verify_tells_a_replay_from_a_repetition(self):
        with self.sink("--verify", "n") as sink:
            for _ in range(2):  # 0 to 5 come again on the second connection
                client = Client(sink.port)
                client.upgrade()
                client.send(build_message([rows_of("t", 0, 6)]))
                client.answer()
            client.send(build_message([rows_of("t", 4, 4)]))  # 4 and 5 again, on the same
            client.answer()
            summary = sink.summary()
            assert (summary["doubled"], summary["repeated"], summary["lost"]) == (8, 2, 0), summary

    def test_status_fault_rejects_the_message_of_a_table_and_no_other(self):
        with self.sink("--fault", "status=9,table=BAD,times=2,text=no, never: x=1,y") as sink:
            for _ in range(2):
                client = Client(sink.port)
                client.upgrade()
                client.send(build_message([rows_of("good", 0, 3)]))
                assert client.answer()[:2] == ("ok", 0)
                client.send(build_message([rows_of("good", 3, 1), rows_of("bad", 0, 1)]))
                assert client.answer() == (9, 1, "no, never: x=1,y")
            client = Client(sink.port)
            client.upgrade()
            client.send(build_message([rows_of("bad", 0, 1)]))
            assert client.answer()[:2] == ("ok", 0)
            assert sink.summary()["tables"] == {"good": 6, "bad": 1}
            assert sink.faults()["hits"] == 2

    def test_status_fault_meets_a_frame_and_can_be_set_and_cleared(self):
        with self.sink() as sink:
            sink.fault("status=0x0c,frame=1,connection=1,text=%s" % ("y" * 300))
            for connection in range(3):
                client = Client(sink.port)
                client.upgrade()
                client.send(build_message(delta=["a"], flags=DELTA | DEFER))
                client.send(build_message([rows_of("t", 0, 1)]), build_message([rows_of("t", 1, 1)]))
                answer = client.answer()
                while answer[:2] == ("ok", 1):
                    answer = client.answer()
                assert answer[:2] == ((0x0C, 2) if connection == 1 else ("ok", 2)), answer
                if connection == 1:
                    sink.clear_faults()
                    sink.fault("status=5,frame=0,connection=1")
            assert sink.ask("fault status=256")["faults"] == sink.ask("fault nonsense")["faults"]
            assert len(sink.faults()["faults"]) == 1 and sink.faults()["hits"] == 1

    def test_recorded_messages_are_shown_over_tls(self):
        with self.sink("--ndjson", "@/rows", "--tls-self-signed", "@/tls") as sink:
            client = Client(sink.port, sink.path("tls/ca.pem"))
            headers = client.upgrade()
            assert headers["x-qwp-version"] == "1"
            assert headers["x-qwp-max-batch-size"] == "2097138"
            assert headers["x-questdb-role"] == "STANDALONE"
            assert "x-qwp-durable-ack" not in headers
            client.send(*recorded(self.data))
            last = -1
            while last < 5:
                kind, last, _ = client.answer()
                assert kind == "ok"
            summary = sink.summary()
            assert summary["rows"] == 33 and summary["messages"] == 6 and summary["errors"] == 0
            assert summary["tables"] == {"trades": 4, "notes": 4, "g": 15, "types": 9, "srv": 1}
            rows = sink.rows()
            t = 1700000000000000000
            assert rows[1] == {
                "table": "trades",
                "row": {
                    "symbol": "BTC-USD",
                    "side": "buy",
                    "price": 65432.1,
                    "amount": 0.25,
                    "seq": 1,
                    "live": False,
                },
                "ts": t + 1000,
                "ts_unit": "ns",
            }
            assert rows[4]["row"]["txt"] == "žluťoučký 🐎"
            types = {}
            for row in rows:
                if row["table"] == "types":
                    types.update({k: v for k, v in row["row"].items() if v is not None})
            assert types == {
                "u": "123e4567-e89b-12d3-a456-426614174000",
                "d": "12345.678",
                "arr": [[1.0, 2.0], [3.0, 4.5]],
                "dt": 1700000000123,
                "c": "Q",
                "l256": hex(2**200 + 7),
                "geo": "u33d8b12",
                "ip": "10.1.2.3",
                "bin": "AAH+",
            }
            assert rows[-1]["ts"] is None and rows[-1]["ts_unit"] is None
            client.close()
            sink.stop()

    def test_upgrade_is_judged(self):
        cases = [
            (404, {"path": "/nothing"}),
            (400, {"method": "POST"}),
            (400, {"version": "HTTP/1.0"}),
            (400, {"drop": ["Host"]}),
            (426, {"drop": ["Upgrade"]}),
            (426, {"Connection": "close"}),
            (426, {"Sec_WebSocket_Version": "8"}),
            (400, {"Sec_WebSocket_Key": "short"}),
            (400, {"X_QWP_Max_Version": "none"}),
            (101, {"path": "/api/v4/write"}),
            (101, {"path": "/write/v4?x=1", "Connection": "keep-alive, Upgrade"}),
            (101, {"drop": ["X-QWP-Max-Version"]}),
        ]
        with self.sink() as sink:
            for wanted, changed in cases:
                client = Client(sink.port)
                status, headers, _ = client.request(**changed)
                assert status == wanted, (status, wanted, changed)
                if wanted != 101:
                    assert client.at_end()
                client.close()
            assert sink.stop()["refused"] == sum(1 for status, _ in cases if status != 101)

    def test_credentials_are_asked_for(self):
        with self.sink("--auth", "user:pass", "--token", "secret") as sink:
            for wanted, value in [
                (401, None),
                (401, "Basic dXNlcjpwYXNz1"),
                (401, "Bearer nonsense"),
                (401, "Bearer"),
                (101, "Basic dXNlcjpwYXNz"),
                (101, "bearer secret"),
            ]:
                client = Client(sink.port)
                status, headers, _ = client.request(**({"Authorization": value} if value else {}))
                assert status == wanted, (status, value)
                assert ("www-authenticate" in headers) == (wanted == 401)
                client.close()
            sink.stop()

    def test_answers_are_cumulative(self):
        with self.sink() as sink:
            client = Client(sink.port)
            client.upgrade()
            count = 50
            client.send(*(build_message([rows_of("t", i, 1), rows_of("u", i, 1)]) for i in range(count)))
            seen = []
            while not seen or seen[-1] < count - 1:
                kind, sequence, tables = client.answer()
                assert kind == "ok"
                seen.append(sequence)
                assert tables == {"t": sequence + 1, "u": sequence + 1}, tables
            assert seen == sorted(set(seen)), seen
            assert all(b - a <= 8 for a, b in zip(seen, seen[1:])), seen
            assert sink.stop()["answers"] == len(seen)

    def test_deferred_rows_wait_for_their_commit(self):
        for arguments in ([], ["--ndjson", "@/rows"]):
            with self.sink(*arguments) as sink:
                client = Client(sink.port)
                client.upgrade()
                client.send(build_message(delta=["a", "b"], flags=DEFER | DELTA))  # catch-up
                client.send(build_message([rows_of("t", 0, 3)], flags=DEFER | DELTA))
                client.send(build_message([rows_of("t", 3, 2)], flags=DEFER | DELTA, delta_start=2, delta=["c"]))
                client.send_raw(client.frame(b"are you there", first=0x89))
                assert client.receive() == (10, b"are you there")  # and no answer before it
                summary = sink.summary()
                assert summary["rows"] == 0 and summary["messages"] == 3 and summary["deferred"] == 3
                if arguments:
                    assert sink.rows() == []
                client.send(build_message([]))
                assert client.answer() == ("ok", 3, {"t": 1})
                assert sink.summary()["rows"] == 5
                if arguments:
                    assert [row["row"]["n"] for row in sink.rows()] == [0, 1, 2, 3, 4]
                # Left without a commit: never was.
                client.send(build_message([rows_of("t", 5, 1)], flags=DEFER | DELTA))
                client.send_raw(client.frame(b"", first=0x89))
                client.receive()
                client.close()
                summary = sink.stop()
                assert summary["rows"] == 5 and summary["rolled_back"] == 1, summary

    def test_rejection_ends_a_connection(self):
        good = build_message([rows_of("t", 0, 1)])
        twins = block("t", [("Q", LONG, longs(1)), ("q", LONG, longs(1))], 1)
        early = block("t", [("", NANOS, longs(-1))], 1)
        bad = block("t", [("s", SYMBOL, varint(7))], 1)
        cases = [
            (PARSE_ERROR, b"nonsense", "12"),
            (PARSE_ERROR, good[:-1], "payload length"),
            (PARSE_ERROR, build_message([rows_of("t", 0, 1), twins]), "but for case"),
            (PARSE_ERROR, build_message([rows_of("../t", 0, 1)]), "'/'"),
            (PARSE_ERROR, build_message([bad]), "symbol 7"),
            (WRITE_ERROR, build_message([early]), "outside 0 to"),
            (DICTIONARY_GAP, build_message(delta_start=1, delta=["x"]), "begins at symbol 1"),
        ]
        with self.sink("--ndjson", "@/rows") as sink:
            for status, message, words in cases:
                client = Client(sink.port)
                client.upgrade()
                client.send(good, message, good)
                assert client.answer() == ("ok", 0, {"t": client_txn(sink)})
                got, sequence, text = client.answer()
                assert (got, sequence) == (status, 1), (got, sequence, text)
                assert words in text, text
                client.send(good)
                client.send_raw(client.frame(b"x", first=0x89))
                assert client.receive() == (10, b"x")  # it reads on, but answers nothing
                client.close()
            summary = sink.stop()
            assert summary["rows"] == len(cases) and summary["errors"] == len(cases)

    def test_breach_of_websocket_is_closed(self):
        good = build_message([rows_of("t", 0, 1)])
        with self.sink("--max-batch", 4096) as sink:
            for code, raw in [
                (1002, lambda c: c.frame(good, masked=False)),
                (1002, lambda c: c.frame(good, first=0x81)),
                (1002, lambda c: c.frame(good, first=0x02)),
                (1002, lambda c: c.frame(good, first=0x80)),
                (1002, lambda c: c.frame(good, first=0xC2)),
                (1002, lambda c: c.frame(good, first=0x83)),
                (1002, lambda c: c.frame(b"", first=0x09)),
                (1002, lambda c: c.frame(b"x" * 126, first=0x89)),
                (1002, lambda c: bytes([0x82, 0x80 | 126, 0, 5]) + bytes(9)),
                (1009, lambda c: c.frame(bytes(4097))),
                (1000, lambda c: c.frame(struct.pack(">H", 1000) + b"bye", first=0x88)),
            ]:
                client = Client(sink.port)
                assert client.upgrade()["x-qwp-max-batch-size"] == "4096"
                client.send(good)
                client.send_raw(raw(client))
                assert client.answer()[0] == "ok"
                opcode, payload = client.receive()
                assert opcode == 8 and struct.unpack_from(">H", payload)[0] == code, payload
                assert client.at_end()
                client.close()
            summary = sink.stop()
            assert summary["rows"] == 11 and summary["errors"] == 10

    def test_bytes_may_come_one_by_one(self):
        with self.sink() as sink:
            client = Client(sink.port)
            client.upgrade()
            for message in (build_message([rows_of("t", 0, 2)]), build_message([])):
                for byte in client.frame(message):
                    client.send_raw(bytes([byte]))
            while client.answer()[1] != 1:
                pass
            assert sink.stop()["rows"] == 2

    def test_first_message_may_ride_with_the_request(self):
        with self.sink() as sink:
            client = Client(sink.port)
            client.sock = Riding(client.sock, client.frame(build_message([rows_of("t", 0, 2)])))
            client.upgrade()
            assert client.answer() == ("ok", 0, {"t": 1})
            assert sink.stop()["rows"] == 2

    def test_durable_acks_follow(self):
        with self.sink("--durable") as sink:
            client = Client(sink.port)
            headers = client.upgrade(X_QWP_Request_Durable_Ack="true")
            assert headers["x-qwp-durable-ack"] == "enabled"
            client.send(build_message([rows_of("t", 0, 1)]))
            assert client.answer() == ("ok", 0, {"t": 1})
            assert client.answer() == ("durable", {"t": 1})
            client.close()
            sink.stop()

    def test_sequences_are_verified(self):
        with self.sink("--verify", "n,k") as sink:
            client = Client(sink.port)
            client.upgrade()

            def send(*pairs):
                ids = b"".join(varint(k) for k, _ in pairs)
                columns = [("k", SYMBOL, ids), ("n", LONG, longs(*(n for _, n in pairs)))]
                client.send(build_message([block("t", columns, len(pairs))], delta=["a", "b"]))
                while client.answer()[0] != "ok":
                    pass

            send((0, 0), (1, 0), (0, 1), (1, 1))
            summary = sink.summary()
            assert (summary["lost"], summary["doubled"], summary["disordered"]) == (0, 0, 0)
            send((0, 2), (0, 2), (0, 5), (0, 4))
            summary = sink.summary()
            assert (summary["lost"], summary["doubled"], summary["disordered"]) == (1, 1, 1)
            send((0, 3), (1, -1))
            client.close()
            summary = sink.stop()
            assert (summary["lost"], summary["doubled"], summary["disordered"]) == (0, 1, 2)
            assert summary["sequences"] == 2 and summary["unverified"] == 1

    def test_files_hold_the_rows_of_each_table(self):
        with self.sink("--files", "@/files", "--summary", "@/summary") as sink:
            client = Client(sink.port)
            client.upgrade()
            client.send(build_message([rows_of("a b.c", 0, 2), rows_of("u", 7, 1), rows_of("A b.c", 2, 1)]))
            assert client.answer() == ("ok", 0, {"a b.c": 1, "u": 1})
            client.close()
            summary = sink.stop()
            assert summary["tables"] == {"a b.c": 3, "u": 1}
            with open(sink.path("summary")) as file:
                assert json.load(file) == summary
            assert [row["row"]["n"] for row in sink.rows("files/a b.c.ndjson")] == [0, 1, 2]
            assert [row["row"]["n"] for row in sink.rows("files/u.ndjson")] == [7]

    def test_doubles_come_back_exactly(self):
        values = [0.0, -0.0, 0.1, 1 / 3, 1e22, 1e23, -2.5, 5e-324, 1.7976931348623157e308, 123456.789012]
        values += [2.0**53, 2.0**53 + 2, 0.1 + 0.2, 1e-7, 123456789.123456]
        special = [float("inf"), float("-inf"), float("nan")]
        with self.sink("--ndjson", "@/rows") as sink:
            client = Client(sink.port)
            client.upgrade()
            both = values + special
            data = struct.pack("<%dd" % len(both), *both)
            client.send(build_message([block("t", [("d", DOUBLE, data)], len(both))]))
            client.answer()
            client.close()
            sink.stop()
            got = [row["row"]["d"] for row in sink.rows()]
            assert [struct.pack("<d", v) for v in got[: len(values)]] == [
                struct.pack("<d", v) for v in values
            ], got
            assert got[len(values) :] == ["Infinity", "-Infinity", "NaN"]

    def test_many_connections_at_once(self):
        with self.sink("--verify", "n") as sink:
            clients = [Client(sink.port) for _ in range(64)]
            for client in clients:
                client.upgrade()
            for i, client in enumerate(clients):
                client.send(*(build_message([rows_of("t%d" % i, 10 * j, 10)]) for j in range(20)))
            for i, client in enumerate(clients):
                last = -1
                while last < 19:
                    _, last, tables = client.answer()
                assert tables == {"t%d" % i: 20}
            summary = sink.summary()
            assert summary["rows"] == 64 * 200 and summary["connections_open"] == 64
            assert summary["lost"] == summary["doubled"] == summary["disordered"] == 0
            # Still connected: the server says good-bye.
            sink.stop()
            opcode, payload = clients[0].receive()
            assert opcode == 8 and struct.unpack_from(">H", payload)[0] == 1001
            for client in clients:
                client.close()

    def test_certificate_is_used_again(self):
        with self.sink("--tls-self-signed", "@/tls") as sink:
            here = self.here
            ca = pathlib.Path(sink.path("tls/ca.pem")).read_bytes()
            assert os.stat(sink.path("tls/server.key")).st_mode & 0o077 == 0
            sink.stop()
        with Sink(self.program, here, "--tls-self-signed", here + "/tls") as sink:
            assert pathlib.Path(sink.path("tls/ca.pem")).read_bytes() == ca
            client = Client(sink.port, sink.path("tls/ca.pem"), host="localhost")
            client.upgrade()
            client.close()
            # Someone who does not speak TLS.
            plain = Client(sink.port)
            plain.send_raw(b"GET /write/v4 HTTP/1.1\r\n\r\n")
            try:
                plain.receive()
            except (EOFError, ConnectionResetError):
                pass
            plain.close()
            sink.stop()


def client_txn(sink):
    return sink.summary()["tables"]["t"]


def main():
    program, data = sys.argv[1:3]
    wanted = sys.argv[3:]
    with tempfile.TemporaryDirectory(prefix="qwp-sink-") as directory:
        tests = Tests(program, data, directory)
        names = [n for n in dir(tests) if n.startswith("test_") and (not wanted or n in wanted)]
        for name in names:
            start = time.monotonic()
            getattr(tests, name)()
            print("ok %s (%.2f s)" % (name, time.monotonic() - start), flush=True)


if __name__ == "__main__":
    main()
