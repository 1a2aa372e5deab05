#!/usr/bin/env python3
"""Columnar chunks of every type: each row arrives as written, in order, also when a chunk is cut into pieces."""
import json
import os
import random
import time

import all_types
from qwp_ctypes import QwpError
from stack import Stack, arguments

SEED = int(os.environ.get("QWP_TEST_SEED", time.time_ns() % 1000000))
ROUNDS = 25


def random_table(random_state, round_number):
    """(name, columns, [(given, shown)]) of some kinds, with nulls in some columns."""
    kinds = random_state.sample(sorted(all_types.KINDS), random_state.randint(1, 12))
    columns = [("id", "long", 0)] + [("c_" + kind, kind, all_types.KINDS[kind][0]) for kind in kinds]
    null_share = {kind: random_state.choice([0, 0, 0.01, 0.5, 1]) for kind in kinds}
    rows = []
    for r in range(random_state.choice([1, 2, 7, 8, 9, 63, 64, 65, 1000, 9000])):
        given, shown = {"id": r}, {"id": r}
        for kind in kinds:
            value = random_state.choice(all_types.KINDS[kind][1])
            is_null = random_state.random() < null_share[kind]
            shown["c_" + kind] = None if is_null else all_types.KINDS[kind][2](value)
            if not is_null:
                given["c_" + kind] = value
        rows.append((given, shown))
    return "chunk_%d" % round_number, columns, rows


def check(stack, tables):
    """`tables`: name -> rows as shown, in order."""
    seen = {}
    with open(os.path.join(stack.directory, "rows")) as file:
        for line in file:
            row = json.loads(line)
            seen.setdefault(row["table"], []).append(row)
    for name, (rows, unit) in tables.items():
        got = seen[name]
        assert len(got) == len(rows), (name, len(got), len(rows))
        for r, (arrived, shown) in enumerate(zip(got, rows)):
            found = {column: arrived["row"].get(column) for column in shown}
            assert found == shown, "%s row %d\n%s\n%s" % (name, r, found, shown)
            if unit is not None:
                assert arrived["ts"] == all_types.time_of(r, unit), (name, r, arrived)


def refused(table, values, offsets_fall=False):
    chunk = table.chunk([{"v": value} for value in values])
    if offsets_fall:
        chunk.offsets_fall()
    try:
        chunk.write("ns", range(len(values)))
    except QwpError as error:
        return str(error)
    raise AssertionError("taken: %r" % (values,))


def check_refusals(producer):
    """A chunk with one bad value leaves nothing behind, and says which column it is."""
    before = producer.position_published()
    text = producer.table("bad_text", [("v", "varchar", 0)])
    assert "column 'v'" in refused(text, [b"good", b"\xc3"])
    assert "column 'v'" in refused(text, [b"\xc3", b"\xa9"])  # valid only together
    assert "offsets" in refused(text, [b"a", b"b"], offsets_fall=True)
    assert "geohash" in refused(producer.table("bad_geohash", [("v", "geohash", 5)]), [1, 32])
    assert "digits" in refused(producer.table("bad_decimal", [("v", "decimal64", 2)]), [10**18])
    symbol = producer.table("bad_symbol", [("v", "symbol", 0)])
    assert "UTF-8" in refused(symbol, [b"\xff"])
    assert producer.position_published() == before


def write_mixed(producer):
    """Rows and chunks of one table in turn, published each by itself and as one unit: ids in order."""
    table = producer.table("mixed", [("id", "long", 0), ("v", "varchar", 0)])
    rows = [{"id": i, "v": "text %d" % i} for i in range(40)]
    at = 0
    for unit in (False, True):
        if unit:
            producer.unit_begin()
        for size in (1, 7, 1, 3, 8):
            if size == 1:
                table.row(rows[at], ("ns", all_types.time_of(at, "ns")))
            else:
                times = [all_types.time_of(r, "ns") for r in range(at, at + size)]
                table.chunk(rows[at:at + size]).write("ns", times)
            at += size
        if unit:
            producer.unit_publish()
    assert at == len(rows)
    return {"mixed": (rows, "ns")}


if __name__ == "__main__":
    options = arguments(__doc__)
    print("QWP_TEST_SEED=%d" % SEED)
    state = random.Random(SEED)
    for compact in ("on", "off"):
        with Stack(options.build, sink=["--ndjson", "{dir}/rows"], tls=False,
                   sidecar=["--compact", compact]) as stack:
            producer = stack.python_producer()
            tables = {}
            for number in range(ROUNDS):
                name, columns, rows = random_table(state, number)
                unit = state.choice(["ns", "us", None])
                table = producer.table(name, columns)
                chunk = table.chunk([given for given, _ in rows], ahead=state.choice([0, 1, 5, 8]),
                                    dictionary=state.random() < 0.5,
                                    leave_validity_out=state.random() < 0.5)
                times = [all_types.time_of(r, unit) for r in range(len(rows))]
                assert chunk.write(unit, times) == len(rows)
                tables[name] = ([shown for _, shown in rows], unit)
            check_refusals(producer)
            tables.update(write_mixed(producer))
            producer.wait_acked()
            producer.close()
            assert stack.stop_sidecar() == 0
            check(stack, tables)
            print("compact %s: %d rows equal" % (compact, sum(len(r) for r, _ in tables.values())))
