#!/usr/bin/env python3
"""Eight producers and a real server; one sends text into a LONG column of its own table. The other seven
lose nothing; the refused rows lie in rejected/ with the server's words; once the column is altered,
put-back delivers them beside the running sidecar."""
import json
import os
import subprocess
import sys
import time

from qwp_ctypes import Producer, QwpError
from real_server import connect_strings, server_or_skip, sql, wait_rows
from stack import Stack, arguments, wait_until

SECONDS = float(os.environ.get("QWP_REJECT_SECONDS", "4"))
GOOD = 7
TIME_US = 1700000000000000


def work(library, rings, table_name, kind):
    """One producer: row after row, each waited for. Prints rows and times from publish to settled."""
    producer = Producer(library, rings, table_name)
    table = producer.table(table_name, [("id", "long", 0), ("v", kind, 0), ("sym", "symbol", 0)])
    times, refused = [], 0
    if kind == "varchar":
        time.sleep(SECONDS / 4)  # the others have made their tables
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        i = len(times)
        row = {"id": i, "v": "v%d" % i if kind == "varchar" else i, "sym": "s%d" % (i % 100)}
        started = time.monotonic()
        table.row(row, ("us", TIME_US + i))
        try:
            producer.wait_acked()
        except QwpError as error:
            assert str(error).startswith("9:"), error
            refused += int(str(error).split()[4])
        times.append(time.monotonic() - started)
    producer.close()
    rows = len(times)
    times = sorted(times[1:])  # the first row makes the table
    print(json.dumps({"rows": rows, "refused": refused,
                      "p50_ms": round(1e3 * times[len(times) // 2], 2),
                      "p99_ms": round(1e3 * times[len(times) * 99 // 100], 2),
                      "max_ms": round(1e3 * times[-1], 2)}))


def check(options, scheme, conf):
    unique = "reject_%s_%d_" % (scheme, time.time_ns())
    tables = [unique + "good%d" % i for i in range(GOOD)] + [unique + "bad"]
    bad = tables[-1]
    sql('create table "%s" (id long, v long, sym symbol, timestamp timestamp) '
        "timestamp(timestamp) partition by day wal" % bad)
    library = os.path.join(options.build, "clients", "c", "libqwp.so")
    with Stack(options.build, conf_text=conf) as stack:
        workers = [stack.start([sys.executable, __file__, "--build", options.build, "--work", library,
                                stack.rings, name, "varchar" if name == bad else "long"],
                               stdout=subprocess.PIPE, text=True) for name in tables]
        results = {}
        for name, worker in zip(tables, workers):
            out, _ = worker.communicate(timeout=120)
            assert worker.returncode == 0, name
            results[name] = json.loads(out)
            print(scheme, name[len(unique):], results[name], flush=True)
        for name in tables[:-1]:
            assert results[name]["refused"] == 0, (name, results[name])
            wait_rows(name, results[name]["rows"])
            assert sql('select count_distinct(id) from "%s"' % name) == [[results[name]["rows"]]]
        assert results[bad]["refused"] == results[bad]["rows"] > 0
        rejected(stack, bad, results[bad]["rows"], conf)
        assert stack.stop_sidecar() == 0


def rejected(stack, bad, rows, conf):
    command = [os.path.join(stack.bin, "qwp-sidecar"), "rejected"]
    where = ["--rings", stack.rings]
    out = subprocess.run([*command, "export", *where], check=True, capture_output=True, text=True)
    ids = [json.loads(line)["columns"]["id"] for line in out.stdout.splitlines()]
    assert ids == list(range(rows)), (len(ids), rows)
    entry = json.loads(subprocess.run([*command, "list", "--json", *where], check=True, text=True,
                                      capture_output=True).stdout.splitlines()[0])
    assert entry["table"] == bad and entry["last"]["answer"] == "SCHEMA_MISMATCH", entry
    assert "cannot" in entry["last"]["text"] or entry["last"]["text"], entry
    print("the server's words:", entry["last"]["text"])
    shown = stack.status()
    assert [t["table"] for t in shown["troubles"]] == [bad], shown["troubles"]
    print("connects", shown["connects"], "server errors", shown["server_errors"])
    again = subprocess.run([*command, "put-back", *where, "--conf", conf], capture_output=True, text=True)
    assert again.returncode == 3, (again.stdout, again.stderr)
    sql('alter table "%s" alter column v type varchar' % bad)

    def altered():
        return sql("select type from table_columns('%s') where \"column\" = 'v'" % bad) == [["VARCHAR"]]
    wait_until(altered, "the column is altered")
    again = subprocess.run([*command, "put-back", *where, "--conf", conf], capture_output=True, text=True)
    assert again.returncode == 0, (again.stdout, again.stderr)
    wait_rows(bad, rows)
    assert sql('select count_distinct(id) from "%s"' % bad) == [[rows]]
    # The running sidecar has noticed: the table's next row goes through.
    producer = stack.python_producer("after")
    table = producer.table(bad, [("id", "long", 0), ("v", "varchar", 0)])
    table.row({"id": rows, "v": "mended"}, ("us", TIME_US + rows))
    producer.wait_acked()
    producer.close()
    wait_rows(bad, rows + 1)
    wait_until(lambda: not stack.status()["troubles"], "the table is ok again")


if __name__ == "__main__":
    if "--work" in sys.argv:
        work(*sys.argv[sys.argv.index("--work") + 1:])
        sys.exit(0)
    options = arguments(__doc__)
    server_or_skip()
    for scheme, conf in connect_strings():
        check(options, scheme, conf)
