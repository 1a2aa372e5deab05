"""Tables with a column of every type, and rows with nulls in every position, as values in Python.

Each value is given as (what the producer is handed, what NDJSON and SQL show for it)."""
import base64
import decimal
import uuid

T0_US = 1700000000000000

BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"
GEOHASH_BITS = 40
SCALE = 3


def geohash_text(bits):
    return "".join(BASE32[bits >> GEOHASH_BITS - 5 * (i + 1) & 31] for i in range(GEOHASH_BITS // 5))


def decimal_text(unscaled):
    with decimal.localcontext() as context:
        context.prec = 100
        return str(decimal.Decimal(unscaled).scaleb(-SCALE))


def ipv4_text(address):
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


# By type: parameter, values, and how a value is shown.
KINDS = {
    "boolean": (0, [True, False, True], lambda v: v),
    "byte": (0, [1, -128, 127], lambda v: v),
    "short": (0, [1, -32768, 32767], lambda v: v),
    "int": (0, [1, -2**31 + 1, 2**31 - 1], lambda v: v),
    "long": (0, [1, -2**63 + 1, 2**63 - 1], lambda v: v),
    "float": (0, [1.5, -0.25, 3.0e10], lambda v: v),
    "double": (0, [2615.54, -1e-300, 0.1], lambda v: v),
    "symbol": (0, ["ETH-USD", "", "žluťoučký 🐎"], lambda v: v),
    "timestamp": (0, [T0_US, 0, T0_US + 1], lambda v: v),
    "date": (0, [T0_US // 1000, 0, 1], lambda v: v),
    "uuid": (0, [uuid.UUID("123e4567-e89b-12d3-a456-426614174000").int, 1, (1 << 128) - 1],
             lambda v: str(uuid.UUID(int=v))),
    "long256": (0, [2**200 + 7, 1, 2**255 - 1], hex),
    "geohash": (GEOHASH_BITS, [0x123456789a, 0, 2**GEOHASH_BITS - 2], geohash_text),
    "varchar": (0, ["hello", "", "žluťoučký 🐎" * 5], lambda v: v),
    "timestamp_ns": (0, [T0_US * 1000 + 1, 0, 999], lambda v: v),
    "double_array": (0, [[[1.0, 2.0], [3.0, 4.5]], [[0.5]], [[], []]], lambda v: v),
    "long_array": (0, [[1, -2**63, 3], [[7], [8]], [0]], lambda v: v),
    "decimal64": (SCALE, [12345678, -1, 10**18 - 1], decimal_text),
    "decimal128": (SCALE, [12345678, -(10**37), 10**38 - 1], decimal_text),
    "decimal256": (SCALE, [12345678, -(10**75), 10**75], decimal_text),
    "char": (0, [ord("Q"), ord("ž"), ord("a")], chr),
    "binary": (0, [b"\x00\x01\xfe", b"x", bytes(range(256))],
               lambda v: base64.b64encode(v).decode()),
    "ipv4": (0, [0x0a010203, 1, 0xfffffffe], ipv4_text),
}

ROWS = 7
# Which rows of a column are null, by table.
NULLS = {
    "none": lambda row, column: False,
    "first": lambda row, column: row == 0,
    "middle": lambda row, column: row == ROWS // 2,
    "last": lambda row, column: row == ROWS - 1,
    "all": lambda row, column: True,
    "mixed": lambda row, column: (row + column) % 3 == 0,
}


def columns(kinds=KINDS):
    return [("id", "long", 0)] + [("c_" + kind, kind, kinds[kind][0]) for kind in kinds]


def tables(prefix, kinds=KINDS):
    """Yields (table, rows); a row is (values for the producer, values as shown)."""
    for pattern, is_null in NULLS.items():
        rows = []
        for r in range(ROWS):
            given, shown = {"id": r}, {"id": r}
            for c, (kind, (_, values, show)) in enumerate(kinds.items()):
                if is_null(r, c):
                    shown["c_" + kind] = None
                else:
                    value = values[(r + c) % len(values)]
                    given["c_" + kind], shown["c_" + kind] = value, show(value)
            rows.append((given, shown))
        yield prefix + pattern, rows


def time_of(row, unit):
    return (T0_US + row * 17) * (1000 if unit == "ns" else 1) + (row if unit == "ns" else 0)


def write(producer, prefix, unit="ns", kinds=KINDS, chunks=False):
    """Writes all tables, row by row or as chunks; `unit`: "ns", "us" or None (the server's time)."""
    for name, rows in tables(prefix, kinds):
        table = producer.table(name, columns(kinds))
        if chunks:
            table.chunk([given for given, _ in rows], ahead=3).write(
                unit, [time_of(r, unit) for r in range(len(rows))])
            continue
        producer.rows([(table, given, None if unit is None else (unit, time_of(r, unit)))
                       for r, (given, _) in enumerate(rows)])
    producer.wait_acked()
