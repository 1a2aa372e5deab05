#!/usr/bin/env python3
"""Every type, nulls in every position, ns, us and server time: what the sink prints is what was written."""
import all_types
from stack import Stack, arguments


def expected(unit):
    prefix = "%s_" % unit
    for name, rows in all_types.tables(prefix):
        for r, (_, shown) in enumerate(rows):
            yield {"table": name, "row": shown, "ts_unit": unit,
                   "ts": None if unit is None else all_types.time_of(r, unit)}


if __name__ == "__main__":
    options = arguments(__doc__)
    with Stack(options.build, sink=["--ndjson", "{dir}/rows"]) as stack:
        producer = stack.python_producer()
        for unit in ("ns", "us", None):
            all_types.write(producer, "%s_" % unit, unit)
        producer.close()
        assert stack.stop_sidecar() == 0
        stack.sink.stop()
        got = {}
        for row in stack.sink.rows("rows"):
            got.setdefault(row["table"], []).append(row)
        count = 0
        for unit in ("ns", "us", None):
            want = {}
            for row in expected(unit):
                want.setdefault(row["table"], []).append(row)
            for table, rows in want.items():
                for have, need in zip(got[table], rows, strict=True):
                    if unit is None:
                        have = dict(have, ts=None)
                    # A column without a value in the block is not on the wire.
                    have["row"] = {name: have["row"].get(name) for name in need["row"]}
                    assert have == need, "\n%s\n%s" % (have, need)
                    count += 1
        print("%d rows of %d types equal" % (count, len(all_types.KINDS)))
