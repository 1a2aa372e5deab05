"""Trade rows of 6 columns from the Python client, a data frame at a time, for compare.py.

usage: python_peer.py CONF columns|idle ROWS UNIT     idle: one data frame, then nothing until stdin
                                                      ends"""
import json
import resource
import sys
import time

import numpy as np
import pyarrow as pa
import questdb

T0 = 1_700_000_000_000_000_000


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def frame_of(unit):
    numbers = np.arange(unit, dtype=np.int64)
    symbols = pa.array(["sym-%d" % i for i in range(100)])
    return pa.table({
        "symbol": pa.DictionaryArray.from_arrays(pa.array((numbers % 100).astype(np.int32)), symbols),
        "side": pa.DictionaryArray.from_arrays(pa.array((numbers & 1).astype(np.int32)), symbols),
        "price": numbers * 0.01,
        "amount": numbers * 0.01,
        "id": numbers,
        "maker": pa.array(numbers & 1 != 0),
        "at": pa.array(T0 + numbers, pa.timestamp("ns")),
    })


def main():
    conf, way, rows, unit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    frame = frame_of(unit)
    with questdb.connect(conf + "query_pool_min=0;") as db:
        before, start = cpu_s(), time.monotonic()
        for _ in range(rows // unit):
            db.dataframe(frame, table_name="trades_0", at="at")
        given = time.monotonic()
        if way == "idle":
            print("ready", flush=True)
            sys.stdin.read()
    acked = time.monotonic()
    print(json.dumps({"rows": rows, "given_s": given - start, "acked_s": acked - start,
                      "cpu_s": cpu_s() - before}))


main()
