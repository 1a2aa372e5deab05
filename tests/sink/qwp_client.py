"""A QWP client by hand, for tests of qwp-sink: frames and messages just as a test wants them.

Standard library only. Messages are built by build_message(); nothing here is checked, so that a
test can be as wrong as it likes.
"""
import base64
import hashlib
import os
import socket
import ssl
import struct

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DEFER, GORILLA, DELTA = 0x01, 0x04, 0x08
BOOLEAN, BYTE, LONG, DOUBLE, SYMBOL, TIMESTAMP, VARCHAR, NANOS = 1, 2, 5, 7, 9, 10, 15, 16


def varint(v):
    out = bytearray()
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)
    return bytes(out)


def text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return varint(len(raw)) + raw


def block(table, columns, rows):
    """`columns` is a list of (name, type, bytes behind the null flag 0)."""
    out = text(table) + varint(rows) + varint(len(columns))
    for name, kind, _ in columns:
        out += text(name) + bytes([kind])
    for _, _, data in columns:
        out += b"\0" + data
    return out


def longs(*values):
    return struct.pack("<%dq" % len(values), *values)


def build_message(blocks=(), flags=DELTA, delta_start=0, delta=()):
    payload = b""
    if flags & DELTA:
        payload += varint(delta_start) + varint(len(delta)) + b"".join(text(s) for s in delta)
    payload += b"".join(blocks)
    return b"QWP1" + struct.pack("<BBHI", 1, flags, len(blocks), len(payload)) + payload


class Client:
    def __init__(self, port, ca=None, host="127.0.0.1"):
        self.sock = socket.create_connection((host, port), timeout=30)
        if ca is not None:
            context = ssl.create_default_context(cafile=ca)
            self.sock = context.wrap_socket(self.sock, server_hostname=host)
        self.pending = b""

    def close(self):
        self.sock.close()

    def read(self, n):
        while len(self.pending) < n:
            got = self.sock.recv(65536)
            if not got:
                raise EOFError
            self.pending += got
        out, self.pending = self.pending[:n], self.pending[n:]
        return out

    def at_end(self):
        """Whether the server has closed (anything still in between would be returned)."""
        try:
            return self.pending == b"" and self.sock.recv(1) == b""
        except (ConnectionResetError, ssl.SSLError):
            return True

    def upgrade_request(self):
        """The bytes of a request, for who looks at the answer alone."""
        return (b"GET /write/v4 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")

    def request(self, path="/write/v4", method="GET", version="HTTP/1.1", drop=(), **changed):
        """Sends an upgrade request; returns (status, headers, body)."""
        key = base64.b64encode(os.urandom(16))
        headers = {
            "Host": "localhost",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key.decode(),
            "X-QWP-Max-Version": "1",
            "X-QWP-Client-Id": "test/1",
        }
        headers.update({k.replace("_", "-"): v for k, v in changed.items()})
        for name in drop:
            del headers[name]
        lines = "".join("%s: %s\r\n" % item for item in headers.items())
        self.sock.sendall(("%s %s %s\r\n%s\r\n" % (method, path, version, lines)).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.read(1)
        first, *rest = head.decode().strip().split("\r\n")
        answer = {k.lower(): v for k, v in (line.split(": ", 1) for line in rest)}
        if " 101 " in first:
            accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
            assert answer["sec-websocket-accept"] == accept, answer
        body = self.read(int(answer.get("content-length", 0)))
        return int(first.split()[1]), answer, body

    def upgrade(self, **changed):
        status, headers, _ = self.request(**changed)
        assert status == 101, status
        return headers

    def frame(self, payload, first=0x82, masked=True):
        n = len(payload)
        bit = 0x80 if masked else 0
        if n < 126:
            head = bytes([first, bit | n])
        elif n < 65536:
            head = bytes([first, bit | 126]) + struct.pack(">H", n)
        else:
            head = bytes([first, bit | 127]) + struct.pack(">Q", n)
        if not masked:
            return head + payload
        mask = os.urandom(4)
        whole = (mask * (n // 4 + 1))[:n]
        body = (int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")).to_bytes(n, "big")
        return head + mask + body

    def send(self, *messages):
        self.sock.sendall(b"".join(self.frame(m) for m in messages))

    def send_raw(self, raw):
        self.sock.sendall(raw)

    def receive(self):
        """(opcode, payload) of the next frame."""
        first, length = self.read(2)
        if length == 126:
            (length,) = struct.unpack(">H", self.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.read(8))
        return first & 0x0F, self.read(length)

    def answer(self):
        """The next answer: ("ok", sequence, {table: seqTxn}), ("durable", {…}) or
        (status, sequence, text)."""
        opcode, payload = self.receive()
        assert opcode == 2, (opcode, payload)
        if payload[0] == 0:
            return "ok", struct.unpack_from("<q", payload, 1)[0], tables(payload, 9)
        if payload[0] == 2:
            return "durable", tables(payload, 1)
        sequence, length = struct.unpack_from("<qH", payload, 1)
        assert len(payload) == 11 + length
        return payload[0], sequence, payload[11:].decode()


def tables(payload, at):
    (count,) = struct.unpack_from("<H", payload, at)
    at += 2
    out = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", payload, at)
        name = payload[at + 2 : at + 2 + length].decode()
        (out[name],) = struct.unpack_from("<q", payload, at + 2 + length)
        at += 2 + length + 8
    assert at == len(payload)
    return out
