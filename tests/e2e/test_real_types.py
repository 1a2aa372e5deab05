#!/usr/bin/env python3
"""Every type, nulls in every position, through a real QuestDB server: SQL gives back what was written."""
import time

import all_types
from real_server import connect_strings, server_or_skip, sql, wait_rows
from stack import Stack, arguments

# "long arrays are not supported, only double arrays", says the server.
KINDS = {kind: facts for kind, facts in all_types.KINDS.items() if kind != "long_array"}
# How SQL shows a column as all_types does.
SELECT = {
    "timestamp": "cast(c_timestamp as long)",
    "timestamp_ns": "cast(c_timestamp_ns as long)",
    "date": "cast(c_date as long)",
    "binary": "base64(c_binary, 10000)",
    "decimal64": "cast(c_decimal64 as varchar)",
    "decimal128": "cast(c_decimal128 as varchar)",
    "decimal256": "cast(c_decimal256 as varchar)",
}
# SQL's text for the same value.
NORMAL = {"long256": lambda text: hex(int(text, 16)) if text else None}
# All empty arrays are shown alike.
EMPTY_ARRAY = [[], []]
# What the server's own columns make of a null: they have none.
NULL_AS = {"boolean": False, "byte": 0, "short": 0, "char": ""}


def check(prefix, unit):
    for name, rows in all_types.tables(prefix, KINDS):
        wait_rows(name, len(rows))
        present = {row[0] for row in sql('show columns from "%s"' % name)}
        for kind in KINDS:
            column = "c_" + kind
            if column not in present:
                assert all(shown[column] is None for _, shown in rows), (name, column)
                continue
            got = sql('select id, %s from "%s" order by id' % (SELECT.get(kind, column), name))
            if kind in NORMAL:
                got = [[i, NORMAL[kind](v)] for i, v in got]
            want = [[shown["id"], NULL_AS.get(kind) if shown[column] is None else shown[column]]
                    for _, shown in rows]
            want = [[i, [] if v == EMPTY_ARRAY else v] for i, v in want]
            assert got == want, "%s.%s\n%s\n%s" % (name, column, got, want)
        if unit is not None:
            got = sql('select id, cast(timestamp as long) from "%s" order by id' % name)
            assert got == [[r, all_types.time_of(r, unit)] for r in range(len(rows))], (name, got)


if __name__ == "__main__":
    options = arguments(__doc__)
    server_or_skip()
    for scheme, conf in connect_strings():
        with Stack(options.build, conf_text=conf) as stack:
            producer = stack.python_producer()
            for unit in ("ns", "us", None):
                for chunks in (False, True):
                    prefix = "types_%s_%s_%d_" % (scheme, unit, time.time_ns())
                    all_types.write(producer, prefix, unit, KINDS, chunks)
                    check(prefix, unit)
            producer.close()
            assert stack.stop_sidecar() == 0
        print(scheme, "equal")
