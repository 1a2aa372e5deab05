#!/usr/bin/env python3
"""Columns in narrower types than declared, on a real QuestDB server: tables and values come out as they do without."""
import math
import time

from real_server import connect_strings, server_or_skip, sql, wait_rows
from stack import Stack, arguments, wait_until

ROWS = 40
T0_NS = 1700000000000000000
STEP_NS = 3 * 10**9 + 1000  # whole microseconds, and more nanoseconds than Gorilla takes
INF, NAN = float("inf"), float("nan")
FLOAT_MAX = 3.4028234663852886e38
# By declared type and by the narrowest type on the wire: values at its ends, and one beyond the next.
VALUES = {
    ("long", "byte"): [0, 1, -1, 127, -128],
    ("long", "short"): [128, -129, 32767, -32768, 3],
    ("long", "int"): [32768, -32769, 2**31 - 1, -2**31 + 1, 4],
    ("long", "int_null"): [-2**31, 7],  # what an INT takes for its null
    ("long", "long"): [2**31, -2**31 - 1, 2**63 - 1, -2**63 + 1, 5],
    ("long", "long_null"): [-2**63, 6],
    ("int", "byte"): [0, 1, -1, 127, -128],
    ("int", "short"): [128, -129, 32767, -32768, 3],
    ("int", "int"): [32768, -32769, 2**31 - 1, -2**31 + 1, 4],
    ("int", "int_null"): [-2**31, 7],
    ("double", "float"): [0.5, -0.0, 0.0, INF, -INF, NAN, FLOAT_MAX, 2.0**-149, 16777216.0],
    ("double", "double"): [0.1, 1e300, 16777217.0, 2.0**-150, 1.5],
}
# Columns that a server may have already, with the widest of our integers that they take.
EXISTING = {
    "BYTE": "byte", "SHORT": "short", "INT": "int", "LONG": "long", "FLOAT": "int",
    "DOUBLE": "long", "DATE": "int", "TIMESTAMP": "int", "TIMESTAMP_NS": "int", "STRING": "long",
    "VARCHAR": "long", "SYMBOL": "long", "DECIMAL(38,3)": "int",
}
DOUBLES_GO_INTO = ("FLOAT", "DOUBLE", "STRING", "VARCHAR", "SYMBOL")
WIDTHS = ["byte", "short", "int", "long"]
NULLS = {"full": lambda row: False, "first": lambda row: row == 0, "some": lambda row: row % 3 == 1}


def columns_for(server_type=None):
    """(name, declared type, values) of the columns that a table of that kind gets."""
    for (declared, name), values in VALUES.items():
        if server_type is not None:
            if declared == "double" and server_type not in DOUBLES_GO_INTO:
                continue
            if declared == "double" and server_type in ("STRING", "VARCHAR", "SYMBOL"):
                # There the server makes a NaN null or 'NaN', as the block's column has nulls or not.
                values = [v for v in values if not math.isnan(v)]
            if declared != "double" and (name.endswith("null") or WIDTHS.index(name) >
                                         WIDTHS.index(EXISTING[server_type])):
                continue
        for pattern in NULLS:
            yield "%s_%s_%s" % (declared, name, pattern), declared, values


def write(producer, table, columns, first=0, step_ns=STEP_NS):
    handle = producer.table(table, [("id", "long", 0)] + [(n, t, 0) for n, t, _ in columns])
    producer.unit_begin()  # one frame
    for r in range(first, first + ROWS):
        row = {"id": r}
        for c, (name, _, values) in enumerate(columns):
            if not NULLS[name.rsplit("_", 1)[1]](r - first):
                row[name] = values[(r - first + c) % len(values)]
        handle.row(row, ("ns", T0_NS + r * step_ns))
    producer.unit_publish()
    producer.wait_acked()


def write_all(producer, prefix):
    """Yields (table, rows)."""
    everything = list(columns_for())
    write(producer, prefix + "new", everything)
    yield prefix + "new", ROWS

    write(producer, prefix + "columns", [])
    write(producer, prefix + "columns", everything, ROWS, step_ns=1)
    yield prefix + "columns", 2 * ROWS

    write(producer, prefix + "dropped", everything)
    wait_rows(prefix + "dropped", ROWS)
    sql('drop table "%sdropped"' % prefix)
    # The server acknowledges and forgets what it writes to a table that it was just made to drop.
    wait_until(lambda: write(producer, prefix + "dropped", everything) or
               count(prefix + "dropped") > 0, "the table is made again", 60)
    yield prefix + "dropped", ROWS

    for i, server_type in enumerate(EXISTING):
        table = prefix + server_type.split("(")[0].lower()
        columns = list(columns_for(server_type))
        sql('create table "%s" (id long, %s, timestamp %s) timestamp(timestamp) partition by day wal'
            % (table, ", ".join('"%s" %s' % (name, server_type) for name, _, _ in columns),
               "timestamp" if i % 2 else "timestamp_ns"))
        write(producer, table, columns)
        yield table, ROWS


def count(table):
    if not sql("select table_name from tables() where table_name = '%s'" % table):
        return 0
    return sql('select count() from "%s"' % table)[0][0]


def contents(table, rows):
    """Its columns with their types, and its rows, each once (where they were written again)."""
    wait_until(lambda: count(table) >= rows, "%s has its rows" % table, 60)
    return (sorted(row[:2] for row in sql('show columns from "%s"' % table)),
            sql('select distinct * from "%s" order by id' % table))


def run(build, conf, compact, prefix):
    with Stack(build, conf_text=conf, sidecar=["--compact", compact]) as stack:
        producer = stack.python_producer()
        out = {table[len(prefix):]: contents(table, rows)
               for table, rows in write_all(producer, prefix)}
        producer.close()
        sent = stack.status()["bytes_sent"]
        assert stack.stop_sidecar() == 0
    return out, sent


if __name__ == "__main__":
    options = arguments(__doc__)
    server_or_skip()
    _, conf = next(connect_strings())
    tag = "compact_%d_" % time.time_ns()
    wide, wide_bytes = run(options.build, conf, "off", tag + "off_")
    narrow, narrow_bytes = run(options.build, conf, "on", tag + "on_")
    for table in wide:
        assert narrow[table] == wide[table], "%s\n%s\n%s" % (table, narrow[table], wide[table])
    assert narrow_bytes < wide_bytes, (narrow_bytes, wide_bytes)
    print("%d tables equal; %d bytes wide, %d compact" % (len(wide), wide_bytes, narrow_bytes))
