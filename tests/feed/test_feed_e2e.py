#!/usr/bin/env python3
"""qwp-feed through ring and sidecar to the sink: every row of every format arrives once and as it was.

What should arrive is worked out here, by other code: TSBS files by plain splitting, CSV by values
written beside their text."""
import collections
import gzip
import json
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from stack import Stack, arguments, wait_until  # noqa: E402

DATA = os.path.join(HERE, "..", "data")
BUILD = None


def feed(stack, *options, stdin=None, expect=0):
    """Runs qwp-feed to its end and gives its JSON."""
    done = subprocess.run([os.path.join(stack.bin, "qwp-feed"), "--rings", stack.rings, "--json",
                           "--ack-timeout", "60", *map(str, options)],
                          input=stdin, capture_output=True, timeout=120)
    text = done.stderr.decode(errors="replace")
    assert done.returncode == expect, (options, done.returncode, text, done.stdout)
    result = json.loads(done.stdout)
    result["stderr"] = text
    assert result["ok"] == (expect == 0), result
    if expect == 0:
        assert result["rows_acked"] == result["rows_sent"], result
    return result


def unpack(stack, name):
    path = os.path.join(stack.directory, name[:-len(".gz")])
    with gzip.open(os.path.join(DATA, name)) as packed, open(path, "wb") as out:
        out.write(packed.read())
    return path


def ilp_value(text):
    if text.endswith("i"):
        return int(text[:-1])
    if text in ("t", "true"):
        return True
    if text.startswith('"'):
        return text[1:-1]
    return float(text)


def tsbs_rows(path):
    """TSBS lines have no escapes and no spaces within names."""
    for line in open(path):
        head, fields, time = line.rstrip("\n").split(" ")
        table, *tags = head.split(",")
        row = dict(tag.split("=") for tag in tags)
        row.update((key, ilp_value(value)) for key, value in (f.split("=") for f in fields.split(",")))
        yield {"table": table, "row": row, "ts": int(time), "ts_unit": "ns"}


def key(row):
    """Of a row, whatever order its columns come in; nulls and absent columns are the same."""
    columns = {name: value for name, value in row["row"].items() if value is not None}
    return json.dumps([row["table"], row["ts"], row["ts_unit"], columns], sort_keys=True)


def expect_same(got, want, ordered):
    """By table: with `ordered` in the same order, else as often."""
    got_by, want_by = collections.defaultdict(list), collections.defaultdict(list)
    for by, rows in ((got_by, got), (want_by, want)):
        for row in rows:
            by[row["table"]].append(key(row))
    assert got_by.keys() == want_by.keys(), (got_by.keys(), want_by.keys())
    for table, rows in want_by.items():
        have = got_by[table]
        if not ordered:
            rows, have = sorted(rows), sorted(have)
        assert len(have) == len(rows), (table, len(have), len(rows))
        for a, b in zip(have, rows):
            assert a == b, "%s:\narrived  %s\nexpected %s" % (table, a, b)


def rows_of(stack):
    assert stack.stop_sidecar() == 0
    stack.sink.stop()
    return list(stack.sink.rows("rows"))


def new_stack():
    return Stack(BUILD, sink=["--ndjson", "{dir}/rows"])


def tsbs(name, form, processes, rows_from=None):
    with new_stack() as stack:
        path = unpack(stack, name)
        want = list(tsbs_rows(unpack(stack, rows_from) if rows_from else path))
        result = feed(stack, "--format", form, "--processes", processes, path)
        assert result["rows_sent"] == len(want), result
        assert result["tables"] == dict(collections.Counter(row["table"] for row in want)), result
        expect_same(rows_of(stack), want, ordered=processes == 1)
        print("%s: %d rows by %d processes equal" % (name, len(want), processes))


def line_protocol():
    """Escapes, all forms, and standard input."""
    lines = (
        b'my\\ table,t\\ ag=v\\ a\\,l\\=\\\\x,host=\xc5\xbelu\xc5\xa5 i=5i,u=7u,d=-1.5e-3,b=t,'
        b's="a \\"quoted\\" \\\\ line\nbreak, b=c",l=0x1fi,when=1451606400000001t,n=5n 1451606400000000000\n'
        b"# comment\r\n\n"
        b"my\\ table,host=b i=-9223372036854775807i,e= 1451606400000000001\r\n"
        b"nan x=nan,y=inf 5t\n")
    want = [
        {"table": "my table", "ts": 1451606400000000000, "ts_unit": "ns",
         "row": {"t ag": "v a,l=\\x", "host": "\u017elu\u0165", "i": 5, "u": 7, "d": -1.5e-3,
                 "b": True, "s": 'a "quoted" \\ line\nbreak, b=c',
                 "l": "0x1f", "when": 1451606400000001, "n": 5}},
        {"table": "my table", "ts": 1451606400000000001, "ts_unit": "ns",
         "row": {"host": "b", "i": -9223372036854775807}},
    ]
    with new_stack() as stack:
        result = feed(stack, "--format", "ilp", "-", stdin=lines)
        assert result["rows_sent"] == 3, result
        got = rows_of(stack)
        special = [row for row in got if row["table"] == "nan"]
        assert len(special) == 1 and special[0]["ts"] == 5 and special[0]["ts_unit"] == "us", special
        expect_same([row for row in got if row["table"] != "nan"], want, ordered=True)
    print("line protocol: escapes and forms equal")


CSV_COLUMNS = [  # name, type, then pairs of text and what arrives
    ("flag", "boolean", ("true", True), ("F", False)),
    ("by", "byte", ("-128", -128), ("7", 7)),
    ("sh", "short", ("-32768", -32768), ("9", 9)),
    ("in", "int", ("2147483647", 2147483647), ("-5", -5)),
    ("lo", "long", ("-9223372036854775807", -9223372036854775807), ("0", 0)),
    ("fl", "float", ("0.5", 0.5), ("-1e3", -1000.0)),
    ("do", "double", ("0.1", 0.1), ("1.7976931348623157e308", 1.7976931348623157e308)),
    ("sy", "symbol", ("A,B", "A,B"), ("\u017e", "\u017e")),
    ("va", "varchar", ('say "hi"\nthere', 'say "hi"\nthere'), ("x", "x")),
    ("ch", "char", ("\u20ac", "\u20ac"), ("A", "A")),
    ("da", "date", ("2016-01-01", 1451606400000), ("5", 5)),
    ("ts2", "timestamp", ("2016-01-01T00:00:00.000001Z", 1451606400000001), ("6", 6)),
    ("tn", "timestamp_ns", ("2016-01-01T00:00:00.000000001Z", 1451606400000000001), ("7", 7)),
    ("uu", "uuid", ("11111111-2222-3333-4444-555555555555",) * 2,
     ("01234567-89ab-cdef-0123-456789abcdef",) * 2),
    ("ip", "ipv4", ("192.168.1.2",) * 2, ("10.0.0.1",) * 2),
    ("bi", "binary", ("aGVsbG8=",) * 2, ("/+8A",) * 2),
    ("de", "decimal(18,2)", ("-12.50",) * 2, ("7.00",) * 2),
    ("d2", "decimal(76,3)", ("123456789012345678901234567890.125",) * 2, ("0.001",) * 2),
    ("da2", "double[]", ("[[1,2.5],[3,4]]", [[1.0, 2.5], [3.0, 4.0]]), ("[]", [])),
]


def csv_field(text):
    return '"%s"' % text.replace('"', '""') if any(c in text for c in ',"\n') else text


def csv_all_types():
    """Every type with a schema, and a null of each in the third row."""
    schema = ",".join("%s:%s" % (name, kind) for name, kind, *_ in CSV_COLUMNS)
    header = ",".join(name for name, *_ in CSV_COLUMNS) + ",when\r\n"
    text, want = header, []
    for r in range(3):
        cells = [c[2 + r][0] if r < 2 else "" for c in CSV_COLUMNS]
        text += ",".join(map(csv_field, cells)) + ",%d/01/2016 10:00:00.5\r\n" % (r + 1)
        want.append({"table": "all", "ts_unit": "us",
                     "ts": 1451642400500000 + r * 86400000000,
                     "row": {c[0]: c[2 + r][1] for c in CSV_COLUMNS} if r < 2 else {}})
    with new_stack() as stack:
        feed(stack, "--format", "csv", "--table", "all", "--schema", schema, "--time", "when",
             "--time-format", "%d/%m/%Y %H:%M:%S.%f", "-", stdin=text.encode())
        expect_same(rows_of(stack), want, ordered=True)
    print("csv: %d types with nulls equal" % len(CSV_COLUMNS))


def csv_inferred():
    lines = ["ts,sym,price,size,note,ok"]
    want = []
    for i in range(5000):
        lines.append("%d,S%d,%.3f,%s,%s,%s" % (1451606400000 + i, i % 7, i / 8,
                                               "" if i % 5 == 0 else i,
                                               '"a, ""b"""' if i % 3 else "", "true" if i % 2 else "false"))
        want.append({"table": "trades", "ts": (1451606400000 + i) * 1000, "ts_unit": "us",
                     "row": {"sym": "S%d" % (i % 7), "price": float("%.3f" % (i / 8)),
                             "size": None if i % 5 == 0 else i,
                             "note": 'a, "b"' if i % 3 else None, "ok": bool(i % 2)}})
    with new_stack() as stack:
        path = os.path.join(stack.directory, "trades.csv")
        with open(path, "w") as file:
            file.write("\n".join(lines))
        result = feed(stack, "--format", "csv", "--table", "trades", "--time", "ts", "--symbols", "sym",
                      "--processes", 3, path)
        assert result["rows_sent"] == 5000, result
        expect_same(rows_of(stack), want, ordered=False)
    print("csv: 5000 rows of inferred types equal")


def sequences():
    """The columns added for checking, over several processes and passes."""
    with Stack(BUILD, sink=["--verify", "seq,producer"]) as stack:
        path = unpack(stack, "tsbs-devops.ilp.gz")
        result = feed(stack, "--format", "ilp", "--add-seq", "seq", "--processes", 4, "--repeat", 3, path)
        assert result["rows_sent"] == 3 * 21600, result
        qwpb = feed(stack, "--format", "qwpb", "--add-seq", "seq", "--producer", "second", "--repeat", 2,
                    "--processes", 2, unpack(stack, "tsbs-cpu-only.qwpb.gz"))
        assert qwpb["rows_sent"] == 2 * 36000, qwpb
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["rows"] == 3 * 21600 + 2 * 36000, summary
        for trouble in ("lost", "doubled", "disordered", "errors"):
            assert summary[trouble] == 0, summary
    print("sequences: %d rows without a gap" % summary["rows"])


def many_symbols():
    """More symbols than the ring takes: the rest travels as text."""
    lines = "".join("s,id=symbol-%06d v=%di %d\n" % (i, i, i + 1) for i in range(20000))
    want = [{"table": "s", "ts": i + 1, "ts_unit": "ns", "row": {"id": "symbol-%06d" % i, "v": i}}
            for i in range(20000)]
    with new_stack() as stack:
        result = feed(stack, "--format", "ilp", "--definition-bytes", "128k", "-", stdin=lines.encode())
        assert result["rows_sent"] == 20000, result
        expect_same(rows_of(stack), want, ordered=True)
    print("symbols: 20000 in definitions of 128 KiB equal")


def large_rows():
    """A text that needs a larger ring than usual."""
    text = "\u017e" * 350000
    line = ('t a="%s",b=1i 1\nt a="x",b=2i 2\n' % text).encode()
    with new_stack() as stack:
        failed = feed(stack, "--format", "ilp", "-", stdin=line, expect=1)
        assert "line 1: table 't': the row is too large" in failed["error"], failed
        feed(stack, "--format", "ilp", "--ring-bytes", "4m", "-", stdin=line)
        want = [{"table": "t", "ts": 1, "ts_unit": "ns", "row": {"a": text, "b": 1}},
                {"table": "t", "ts": 2, "ts_unit": "ns", "row": {"a": "x", "b": 2}}]
        expect_same(rows_of(stack), want, ordered=True)
    print("large rows: 700 kB equal")


def bad_lines():
    text = b"t a=1i 1\nt a=oops 2\nt a=3i 3\nt a=\"\xff\" 4\nt a=5i 9223372036854775807\nt a=6i 6\n"
    with new_stack() as stack:
        failed = feed(stack, "--format", "ilp", "-", stdin=text, expect=1)
        assert failed["rows_sent"] == 1 and failed["rows_acked"] == 1, failed
        assert "standard input: line 2: " in failed["error"], failed
        bad = os.path.join(stack.directory, "bad")
        kept = feed(stack, "--format", "ilp", "--skip-bad", bad, "-", stdin=text)
        assert kept["rows_sent"] == 3 and kept["rows_bad"] == 3, kept
        for line in ("line 2", "line 4", "line 5"):
            assert "skipped standard input: %s: " % line in kept["stderr"], kept
        with open(bad, "rb") as file:
            assert file.read() == b"".join(text.splitlines(True)[i] for i in (1, 3, 4)), "bad lines kept"
        assert len(rows_of(stack)) == 4
    print("bad lines: named, counted and kept")


def follow():
    """A growing file, then a new one of its name; SIGTERM ends it with everything acknowledged."""
    with new_stack() as stack:
        path = os.path.join(stack.directory, "log.ilp")
        open(path, "w").close()
        process = stack.start([os.path.join(stack.bin, "qwp-feed"), "--rings", stack.rings, "--json",
                               "--format", "ilp", "--follow", path], stdout=subprocess.PIPE)
        file = open(path, "a", buffering=1)

        def arrived(n):
            return lambda: stack.status()["rows_acked"] >= n

        for i in range(100):
            file.write("t a=%di " % i)
            file.flush()
            file.write("%d\n" % (i + 1))
        wait_until(arrived(100), "100 rows arrive")
        os.rename(path, path + ".1")
        with open(path, "w") as new:
            for i in range(100, 150):
                new.write("t a=%di %d\n" % (i, i + 1))
        wait_until(arrived(150), "50 rows of the new file arrive")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        result = json.loads(out)
        assert process.returncode == 0 and result["rows_acked"] == 150, result
        file.close()
        want = [{"table": "t", "ts": i + 1, "ts_unit": "ns", "row": {"a": i}} for i in range(150)]
        expect_same(rows_of(stack), want, ordered=True)
    print("follow: 150 rows of a growing and a new file equal")


def slow_pipe():
    """What comes through a pipe goes on at once, not when a block is full."""
    with new_stack() as stack:
        process = stack.start([os.path.join(stack.bin, "qwp-feed"), "--rings", stack.rings, "--json",
                               "--format", "ilp", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for i in range(3):
            process.stdin.write(b"t a=%di %d\n" % (i, i + 1))
            process.stdin.flush()
            wait_until(lambda: stack.status()["rows_acked"] >= i + 1, "row %d arrives" % i)
        process.stdin.close()
        assert process.wait(60) == 0
        assert len(rows_of(stack)) == 3
    print("pipe: rows arrive one by one")


def no_sidecar():
    """Rows wait in the ring; who waits for acknowledgements is told why there are none."""
    with new_stack() as stack:
        stack.stop_sidecar()
        done = subprocess.run([os.path.join(stack.bin, "qwp-feed"), "--rings", stack.rings, "--json", "--format",
                               "ilp", "--ack-timeout", "4", "-"], input=b"t a=1i 1\n", capture_output=True,
                              timeout=60)
        assert done.returncode == 1 and b"not acknowledged" in done.stderr, done
        assert b"no sidecar serves this rings directory" in done.stderr, done
        assert json.loads(done.stdout)["rows_sent"] == 1
        early = subprocess.run([os.path.join(stack.bin, "qwp-feed"), "--rings", stack.rings, "--json", "--format",
                                "ilp", "--no-wait", "-"], input=b"t a=2i 2\n", capture_output=True, timeout=60)
        assert early.returncode == 0, early
        stack.start_sidecar()
        assert len(rows_of(stack)) == 2
    print("no sidecar: rows waited in their rings")


def rate():
    """Paced over all processes together: not faster than asked for."""
    lines = "".join("t a=%di %d\n" % (i, i + 1) for i in range(1000))
    with new_stack() as stack:
        result = feed(stack, "--format", "ilp", "--rate", 2000, "--processes", 2, "-", stdin=lines.encode())
        assert result["rows_sent"] == 1000 and result["seconds"] >= 0.4, result
    print("rate: 1000 rows in %.2f s" % result["seconds"])


if __name__ == "__main__":
    BUILD = arguments(__doc__).build
    tsbs("tsbs-cpu-only.ilp.gz", "ilp", 1)
    tsbs("tsbs-devops.ilp.gz", "ilp", 4)
    tsbs("tsbs-cpu-only.qwpb.gz", "qwpb", 1, "tsbs-cpu-only.ilp.gz")
    tsbs("tsbs-cpu-only.qwpb.gz", "qwpb", 4, "tsbs-cpu-only.ilp.gz")
    line_protocol()
    csv_all_types()
    csv_inferred()
    sequences()
    many_symbols()
    large_rows()
    bad_lines()
    follow()
    slow_pipe()
    no_sidecar()
    rate()
