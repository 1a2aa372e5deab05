"""Runs inside the environment with the Python client: writes random rows of every type it knows,
by row and by data frame, and compares what qwp-sink showed with what was sent, row by row.

usage: client_rows.py QWP_SINK DIRECTORY SEED
"""
import base64
import datetime
import decimal
import ipaddress
import math
import os
import random
import struct
import sys
import time
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import questdb
from questdb import (
    Char,
    DateMillis,
    Geohash,
    Long256,
    Sender,
    ServerTimestamp,
    TimestampMicros,
    TimestampNanos,
)

from sink_process import Sink

ROWS = 1500
FRAME_ROWS = 20000
TEXTS = ["", "a", "hello", "žluťoučký 🐎", '"quoted" \\ \n\t\x01', "x" * 300, "日本"]
BASE = 1700000000000000000
decimal.getcontext().prec = 100  # or scaleb() rounds


def double(rng):
    return rng.choice(
        [0.0, -0.0, 1.5, 0.1, 1 / 3, -2.5e-300, 5e-324, 1.7976931348623157e308, math.inf, -math.inf]
        + [struct.unpack("<d", rng.randbytes(8))[0], rng.uniform(-1e6, 1e6)]
    )


def show_double(v):
    if math.isnan(v):
        return "NaN"
    if math.isinf(v):
        return "Infinity" if v > 0 else "-Infinity"
    return v


def same(sent, got):
    """Equal to the last bit: 1.0 is not 1, and -0.0 is not 0.0."""
    if isinstance(sent, list):
        return isinstance(got, list) and len(sent) == len(got) and all(map(same, sent, got))
    if isinstance(sent, float):
        return isinstance(got, float) and struct.pack("<d", sent) == struct.pack("<d", got)
    if isinstance(sent, decimal.Decimal):
        return isinstance(got, str) and decimal.Decimal(got) == sent
    return type(sent) is type(got) and sent == got


def show_array(v):
    return [show_array(x) for x in v] if isinstance(v, (list, np.ndarray)) else show_double(float(v))


def integer(rng, bits):
    low, high = -(1 << (bits - 1)) + 1, (1 << (bits - 1)) - 1  # the lowest means null
    return rng.choice([0, 1, -1, low, high, rng.randint(low, high)])


def geo_text(v, bits):
    if bits % 5 == 0:
        digits = "0123456789bcdefghjkmnpqrstuvwxyz"
        return "".join(digits[v >> (bits - 5 * i - 5) & 31] for i in range(bits // 5))
    return format(v, "0%db" % bits)


def moment(rng):
    return datetime.datetime(
        rng.randint(1971, 2200), 5, 17, 1, 2, 3, rng.randint(0, 999999), tzinfo=datetime.timezone.utc
    )


def micros(v):
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return (v - epoch) // datetime.timedelta(microseconds=1)


def shaped(rng, dimensions):
    shape = [rng.randint(1, 4) for _ in range(dimensions)]
    return np.array([double(rng) for _ in range(math.prod(shape))]).reshape(shape)


# Column -> (a random value, what the sink is to show for it, what it may show where it is missing:
# this client writes the server's reserved values for some types instead of a bitmap).
ROW_COLUMNS = {
    "flag": (lambda r: r.random() < 0.5, lambda v: v, [False]),
    "long": (lambda r: integer(r, 64), lambda v: v, [-(2**63)]),
    "double": (double, show_double, ["NaN"]),
    "text": (lambda r: r.choice(TEXTS), lambda v: v, [None]),
    "us": (lambda r: TimestampMicros(r.randint(0, 2**60)), lambda v: v.value, [None]),
    "ns": (lambda r: TimestampNanos(r.randint(0, 2**62)), lambda v: v.value, [None]),
    "moment": (moment, micros, [None]),
    "line": (lambda r: shaped(r, 1), show_array, [None]),
    "cube": (lambda r: shaped(r, 3), show_array, [None]),
    "amount": (
        lambda r: decimal.Decimal(r.randint(-(10**30), 10**30)).scaleb(-6),
        lambda v: v,
        [None],
    ),
    "uuid": (lambda r: uuid.UUID(bytes=r.randbytes(16)), str, [None]),
    "ip": (lambda r: ipaddress.IPv4Address(r.randint(1, 2**32 - 1)), str, [None]),
    "raw": (
        lambda r: r.randbytes(r.choice([0, 1, 2, 3, 100])),
        lambda v: base64.b64encode(v).decode(),
        [None],
    ),
    "char": (lambda r: Char(r.choice("aZž€\n\"")), lambda v: v.value, [None]),
    "date": (lambda r: DateMillis(r.randint(-(2**50), 2**50)), lambda v: v.value, [None]),
    "wide": (lambda r: Long256(r.choice([0, 7, 2**255, r.getrandbits(256)])), lambda v: hex(v.value), [None]),
    "geo": (lambda r: Geohash(r.getrandbits(40), 40), lambda v: geo_text(v.bits, 40), [None]),
    "geo7": (lambda r: Geohash(r.getrandbits(7), 7), lambda v: geo_text(v.bits, 7), [None]),
}


def write_rows(sender, rng):
    """Returns {table: [(symbols and columns as shown, ts, unit)]}."""
    sent = {}
    for i in range(ROWS):
        table = rng.choice(["rows", "Žluté řádky"])
        symbols = {n: rng.choice(TEXTS[1:] + ["s%d" % rng.randint(0, 400)]) for n in ("sym", "súm") if rng.random() < 0.8}
        columns = {n: make(rng) for n, (make, _, _) in ROW_COLUMNS.items() if rng.random() < 0.7}
        columns["seq"] = i
        # One unit for all rows of a table that are sent together.
        at = TimestampNanos(BASE + i) if table == "rows" else moment(rng)
        sender.row(table, symbols=symbols, columns=columns, at=at)
        shown = dict(symbols)
        shown.update({n: ROW_COLUMNS[n][1](v) for n, v in columns.items() if n != "seq"})
        shown["seq"] = i
        when = (at.value, "ns") if table == "rows" else (micros(at), "us")
        sent.setdefault(table, []).append((shown, *when))
    for i in range(10):
        sender.row("server time", columns={"seq": i}, at=ServerTimestamp)
        sent.setdefault("server time", []).append(({"seq": i}, None, None))
    sender.flush()
    return sent


def check_rows(sent, got, missing):
    assert sorted(sent) == sorted(got), (sorted(sent), sorted(got))
    for table, rows in sent.items():
        assert len(rows) == len(got[table]), (table, len(rows), len(got[table]))
        for number, ((shown, at, unit), row) in enumerate(zip(rows, got[table])):
            where = "%s, row %d: " % (table, number)
            assert (row["ts"], row["ts_unit"]) == (at, unit), where + repr((row, at, unit))
            for name, value in row["row"].items():
                if shown.get(name) is not None:
                    assert same(shown[name], value), where + repr((name, shown[name], value))
                else:
                    allowed = missing.get(name, [None])
                    assert value in allowed, where + repr((name, "missing", value))
            absent = [n for n, v in shown.items() if v is not None and n not in row["row"]]
            assert not absent, where + repr(absent)


# Data frames: Arrow type, random value for it, what the sink shows, what it shows for a null, and
# how the column is labelled.
def arrow_columns(rng):
    small = {"bits": 5, "geo": 40}
    return {
        "flag": (pa.bool_(), lambda: rng.random() < 0.5, lambda v: v, [False], None),
        "i8": (pa.int8(), lambda: integer(rng, 8), lambda v: v, [None, -(2**31)], None),
        "i16": (pa.int16(), lambda: integer(rng, 16), lambda v: v, [None, -(2**31)], None),
        "i32": (pa.int32(), lambda: integer(rng, 32), lambda v: v, [None, -(2**31), -(2**63)], None),
        "i64": (pa.int64(), lambda: integer(rng, 64), lambda v: v, [None, -(2**63)], None),
        "u8": (pa.uint8(), lambda: rng.getrandbits(8), lambda v: v, [None, -(2**31)], None),
        "u16": (pa.uint16(), lambda: rng.getrandbits(16), lambda v: v, [None, -(2**31)], None),
        "u32": (pa.uint32(), lambda: rng.getrandbits(32), lambda v: v, [None, -(2**63)], None),
        "f32": (
            pa.float32(),
            lambda: struct.unpack("<f", struct.pack("<f", rng.uniform(-9, 9)))[0],
            lambda v: float(str(np.float32(v))),
            [None, "NaN"],
            None,
        ),
        "f64": (pa.float64(), lambda: double(rng), show_double, [None, "NaN"], None),
        "text": (pa.string(), lambda: rng.choice(TEXTS), lambda v: v, [None], None),
        "large": (pa.large_string(), lambda: rng.choice(TEXTS), lambda v: v, [None], None),
        "sym": (
            pa.dictionary(pa.int32(), pa.string()),
            lambda: "sym %d" % rng.randint(0, 300),
            lambda v: v,
            [None],
            None,
        ),
        "us": (pa.timestamp("us"), lambda: rng.randint(0, 2**60), lambda v: v, [None], None),
        "ns": (pa.timestamp("ns"), lambda: rng.randint(0, 2**62), lambda v: v, [None], None),
        "date": (pa.timestamp("ms"), lambda: rng.randint(0, 2**50), lambda v: v, [None], None),
        "day": (
            pa.date32(),
            lambda: rng.randint(0, 40000),
            lambda v: v * 86400000,
            [None],
            None,
        ),
        "d64": (
            pa.decimal128(18, 3),
            lambda: decimal.Decimal(rng.randint(-(10**17), 10**17)).scaleb(-3),
            lambda v: v,
            [None],
            None,
        ),
        "d128": (
            pa.decimal128(38, 9),
            lambda: decimal.Decimal(rng.randint(-(10**37), 10**37)).scaleb(-9),
            lambda v: v,
            [None],
            None,
        ),
        "d256": (
            pa.decimal256(70, 20),
            lambda: decimal.Decimal(rng.randint(-(10**69), 10**69)).scaleb(-20),
            lambda v: v,
            [None],
            None,
        ),
        "uuid": (
            pa.binary(16),
            lambda: rng.randbytes(16),
            lambda v: str(uuid.UUID(bytes=v)),
            [None],
            "uuid",
        ),
        "wide": (
            pa.binary(32),
            lambda: rng.getrandbits(256).to_bytes(32, "little"),
            lambda v: hex(int.from_bytes(v, "little")),
            [None],
            "long256",
        ),
        "ip": (
            pa.uint32(),
            lambda: rng.randint(1, 2**32 - 1),
            lambda v: str(ipaddress.IPv4Address(v)),
            [None],
            "ipv4",
        ),
        "char": (pa.uint16(), lambda: ord(rng.choice("aZž€")), chr, [None], "char"),
        "bits": (
            pa.int8(),
            lambda: rng.getrandbits(small["bits"]),
            lambda v: geo_text(v, small["bits"]),
            [None],
            ("geohash", small["bits"]),
        ),
        "geo": (
            pa.int64(),
            lambda: rng.getrandbits(small["geo"]),
            lambda v: geo_text(v, small["geo"]),
            [None],
            ("geohash", small["geo"]),
        ),
        "raw": (
            pa.binary(),
            lambda: rng.randbytes(rng.choice([0, 1, 2, 3, 50])),
            lambda v: base64.b64encode(v).decode(),
            [None],
            None,
        ),
        "line": (
            pa.list_(pa.float64()),
            lambda: [double(rng) for _ in range(rng.randint(0, 4))],
            show_array,
            [None],
            None,
        ),
        "table": (
            pa.list_(pa.list_(pa.float64())),
            lambda: [[double(rng) for _ in range(2)] for _ in range(rng.randint(1, 3))],
            show_array,
            [None],
            None,
        ),
    }


def make_arrow(kind, values):
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)


def write_arrow_frames(db, rng):
    """A table with all columns at once, and each column alone without nulls."""
    columns = arrow_columns(rng)
    sent, missing = {}, {n: c[3] for n, c in columns.items()}

    def write(table, names, rows, nulls):
        data, overrides = {}, {}
        for name in names:
            kind, make, _, _, label = columns[name]
            data[name] = [None if rng.random() < nulls else make() for _ in range(rows)]
            if label is not None:
                overrides[name] = label
        times = [BASE + 1000 * i for i in range(rows)]
        arrays = {n: make_arrow(columns[n][0], v) for n, v in data.items()}
        arrays["at"] = pa.array(times, pa.timestamp("ns"))
        db.dataframe(pa.table(arrays), table_name=table, at="at", schema_overrides=overrides or None)
        sent[table] = [
            (
                {n: None if v[i] is None else columns[n][2](v[i]) for n, v in data.items()},
                times[i],
                "ns",
            )
            for i in range(rows)
        ]

    write("all", list(columns), ROWS, 0.3)
    for name in columns:
        write("only " + name, [name], 9, 0)
    write("sparse", list(columns), 9, 0.9)
    write("large frame", ["i64", "f64", "sym"], FRAME_ROWS, 0)
    return sent, missing


def write_pandas_frames(db, rng):
    rows = ROWS
    times = pd.to_datetime([BASE + 1000 * i for i in range(rows)]).as_unit("ns")
    frame = pd.DataFrame(
        {
            "flag": [rng.random() < 0.5 for _ in range(rows)],
            "i64": np.array([integer(rng, 64) for _ in range(rows)], np.int64),
            "i32": np.array([integer(rng, 32) for _ in range(rows)], np.int32),
            "f64": [double(rng) for _ in range(rows)],
            "text": [rng.choice(TEXTS) for _ in range(rows)],
            "sym": pd.Categorical(["c%d" % rng.randint(0, 50) for _ in range(rows)]),
            "uuid": [uuid.UUID(bytes=rng.randbytes(16)) for _ in range(rows)],
            "ip": [ipaddress.IPv4Address(rng.randint(1, 2**32 - 1)) for _ in range(rows)],
            "amount": [decimal.Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2) for _ in range(rows)],
            "when": times,
        }
    )
    db.dataframe(frame, table_name="pandas", at="when")
    shown = []
    for i in range(rows):
        row = {n: frame[n].iloc[i] for n in frame.columns if n != "when"}
        row["flag"], row["i64"], row["i32"] = bool(row["flag"]), int(row["i64"]), int(row["i32"])
        row["f64"] = show_double(float(row["f64"]))
        row["uuid"], row["ip"] = str(row["uuid"]), str(row["ip"])
        shown.append((row, BASE + 1000 * i, "ns"))
    return {"pandas": shown}, {"f64": ["NaN"]}


def wait_for(sink, rows):
    deadline = time.monotonic() + 120
    while sink.summary()["rows"] < rows:
        assert time.monotonic() < deadline, (sink.summary(), rows)
        time.sleep(0.02)


def by_table(rows):
    out = {}
    for row in rows:
        out.setdefault(row["table"], []).append(row)
    return out


def run(sink, conf, rng, step):
    """`step` writes and returns (sent, missing)."""
    sent, missing = step(conf, rng)
    wait_for(sink, sum(map(len, sent.values())))
    check_rows(sent, by_table(sink.rows()), missing)
    summary = sink.stop()
    assert summary["errors"] == 0 and summary["refused"] == 0, summary
    assert summary["rows"] == sum(map(len, sent.values())), summary
    return summary


def rows_step(conf, rng):
    with Sender.from_conf(conf) as sender:
        sent = write_rows(sender, rng)
    return sent, {n: c[2] for n, c in ROW_COLUMNS.items()}


def frames_step(conf, rng):
    with questdb.connect(conf + "query_pool_min=0;") as db:
        sent, missing = write_arrow_frames(db, rng)
    return sent, missing


def pandas_step(conf, rng):
    with questdb.connect(conf + "query_pool_min=0;") as db:
        return write_pandas_frames(db, rng)


TRANSPORTS = {
    "ws": ([], "ws::addr=127.0.0.1:{port};"),
    "ws with password": (["--auth", "user:pass;word"], "ws::addr=127.0.0.1:{port};username=user;password=pass;;word;"),
    "wss with password": (
        ["--tls-self-signed", "{dir}/tls", "--auth", "user:secret"],
        "wss::addr=127.0.0.1:{port};tls_roots={dir}/tls/ca.pem;username=user;password=secret;",
    ),
    "wss with token": (
        ["--tls-self-signed", "{dir}/tls", "--token", "t0ken", "--max-batch", "65536"],
        "wss::addr=localhost:{port};tls_roots={dir}/tls/ca.pem;token=t0ken;",
    ),
}


def main():
    program, directory, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for number, (name, (arguments, conf)) in enumerate(TRANSPORTS.items()):
        for step in (rows_step, frames_step, pandas_step):
            here = os.path.join(directory, "%d-%s" % (number, step.__name__))
            arguments_here = [a.format(dir=here) for a in arguments]
            with Sink(program, here, "--ndjson", here + "/rows", *arguments_here) as sink:
                rng = random.Random("%d %s %s" % (seed, name, step.__name__))
                summary = run(sink, conf.format(port=sink.port, dir=here), rng, step)
            print(
                "ok %s over %s: %d rows in %d messages, %d deferred"
                % (step.__name__, name, summary["rows"], summary["messages"], summary["deferred"]),
                flush=True,
            )


if __name__ == "__main__":
    main()
