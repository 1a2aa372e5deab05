#!/usr/bin/env python3
"""TSBS data through qwp-feed and the sidecar into a real QuestDB server: equal counts and, per host, equal
sums of every integer column.

The tables of the data (cpu, disk, ...) are dropped first: give it a server of its own."""
import collections
import gzip
import json
import os
import subprocess

from real_server import connect_strings, server_or_skip, sql, wait_rows
from stack import Stack, arguments

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
LOADS = [("qwpb", "tsbs-cpu-only.qwpb.gz", "tsbs-cpu-only.ilp.gz"),
         ("ilp", "tsbs-cpu-only.ilp.gz", "tsbs-cpu-only.ilp.gz"),
         ("ilp", "tsbs-devops.ilp.gz", "tsbs-devops.ilp.gz")]


def expected(ilp):
    """Rows by table, and sums by table, host and integer column. TSBS text has no escapes."""
    counts = collections.Counter()
    sums = collections.defaultdict(collections.Counter)
    with gzip.open(os.path.join(DATA, ilp), "rt") as file:
        for line in file:
            head, fields, _ = line.split(" ")
            table, *tags = head.split(",")
            host = dict(tag.split("=", 1) for tag in tags)["hostname"]
            counts[table] += 1
            for field in fields.split(","):
                name, value = field.split("=", 1)
                if value.endswith("i"):
                    sums[table, host][name] += int(value[:-1])
    return counts, sums


def check(counts, sums):
    compared = 0
    for table, count in counts.items():
        wait_rows(table, count)
        columns = sorted({c for (t, _), by in sums.items() if t == table for c in by})
        query = "select hostname, %s from \"%s\"" % (
            ", ".join("sum(%s)" % column for column in columns), table)
        for host, *got in sql(query):
            want = [sums[table, host][column] for column in columns]
            assert got == want, "%s of %s: %s, not %s" % (table, host, got, want)
            compared += len(want)
    return compared


if __name__ == "__main__":
    options = arguments(__doc__)
    server_or_skip()
    for scheme, conf in connect_strings():
        for form, file, ilp in LOADS:
            counts, sums = expected(ilp)
            for table in counts:
                sql('drop table if exists "%s"' % table)
            with Stack(options.build, conf_text=conf) as stack:
                path = os.path.join(stack.directory, "input")
                with gzip.open(os.path.join(DATA, file)) as packed, open(path, "wb") as out:
                    out.write(packed.read())
                feed = subprocess.run(
                    [os.path.join(stack.bin, "qwp-feed"), "--rings", stack.rings, "--format", form,
                     "--processes", "4", "--json", "--no-progress", path],
                    check=True, capture_output=True, text=True)
                fed = json.loads(feed.stdout)
                assert fed["rows_acked"] == sum(counts.values()), fed
                assert stack.stop_sidecar() == 0
            print("%-4s %-4s %s: %d rows, %d sums equal" % (
                scheme, form, file, sum(counts.values()), check(counts, sums)))
