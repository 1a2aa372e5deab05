#!/usr/bin/env python3
"""The command line of qwp-feed: usage, exit status, dry runs, and what is said when something goes wrong.

Nothing here needs a sidecar: rows that are sent wait in their rings."""
import argparse
import glob
import gzip
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import tempfile
import time

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
FEED = None


def run(*arguments, stdin=b"", expect=0):
    done = subprocess.run([FEED, *map(str, arguments)], input=stdin, capture_output=True, timeout=120)
    assert done.returncode == expect, (arguments, done)
    return done.stdout.decode(), done.stderr.decode()


def dry(*arguments, stdin=b"", expect=0):
    out, err = run("--dry-run", "--json", *arguments, stdin=stdin, expect=expect)
    return json.loads(out), err


def usage():
    out, err = run("--help")
    assert "Usage: qwp-feed" in out and "--skip-bad" in out and err == ""
    assert run("--version")[0].startswith("qwp-feed ")
    for arguments, words in (
            ([], "no FILE"),
            (["x"], "--format"),
            (["--format", "xml", "x"], "--format xml"),
            (["--format", "csv", "x"], "--table"),
            (["--format", "ilp", "--time", "ts", "x"], "for CSV"),
            (["--format", "ilp", "--processes", "0", "x"], "--processes 0"),
            (["--format", "ilp", "--processes", "many", "x"], "--processes many"),
            (["--format", "ilp", "--rate", "-1", "x"], "--rate -1"),
            (["--format", "ilp", "--ring-bytes", "1q", "x"], "--ring-bytes 1q"),
            (["--format", "ilp", "--table", "a/b", "x"], "--table"),
            (["--format", "ilp", "--add-seq", "a-b", "x"], "--add-seq"),
            (["--format", "ilp", "--precision", "m", "x"], "--precision m"),
            (["--format", "ilp", "--at", "s", "x"], "--at s"),
            (["--format", "csv", "--table", "t", "--delimiter", ",,", "x"], "--delimiter"),
            (["--format", "csv", "--table", "t", "--time-format", "later", "x"], "--time-format"),
            (["--format", "ilp", "--follow", "x", "y"], "--follow takes one"),
            (["--format", "ilp", "--follow", "--repeat", "2", "x"], "exclude"),
            (["--format", "ilp", "--repeat", "2", "-"], "--repeat needs"),
            (["--format", "ilp", "--nonsense", "x"], "nonsense")):
        _, err = run(*arguments, expect=2)
        assert words in err, (arguments, err)


def dry_runs(directory):
    """The three TSBS files, as they are and by several processes."""
    for name, form, rows, tables in (("tsbs-cpu-only.ilp.gz", "ilp", 36000, 1),
                                     ("tsbs-devops.ilp.gz", "ilp", 21600, 9),
                                     ("tsbs-cpu-only.qwpb.gz", "qwpb", 36000, 1)):
        path = os.path.join(directory, name[:-3])
        with gzip.open(os.path.join(DATA, name)) as packed, open(path, "wb") as out:
            out.write(packed.read())
        one, _ = dry("--format", form, path)
        assert one["rows_sent"] == rows and len(one["tables"]) == tables, one
        assert one["columns"]["cpu"]["hostname"] == "symbol", one
        assert one["columns"]["cpu"]["usage_user"] == "long", one
        many, _ = dry("--format", form, "--processes", 5, "--repeat", 2, path)
        assert many["rows_sent"] == 2 * rows, many
        assert many["tables"] == {table: 2 * n for table, n in one["tables"].items()}, many
        assert many["columns"] == one["columns"], many
        with open(path, "rb") as file:
            piped, _ = dry("--format", form, "--processes", 2, "-", stdin=file.read())
        assert piped["tables"] == one["tables"], piped
        assert run("--dry-run", "--format", form, path)[0].count("usage_user") == 1
    assert one["columns"] == dry("--format", "ilp", path.replace(".qwpb", ".ilp"))[0]["columns"]


def csv_types():
    got, _ = dry("--format", "csv", "--table", "t", "--time", "ts", "-",
                 stdin=b"ts,a,b,c\n2016-01-01,1,x,1.5\n")
    assert got["columns"] == {"t": {"a": "long", "b": "varchar", "c": "double"}}, got
    got, _ = dry("--format", "csv", "--table", "t", "-", stdin=b"a\n1\nx\n")
    assert got["columns"] == {"t": {"a": "varchar"}}, got  # from both rows
    got, err = dry("--format", "csv", "--table", "t", "--infer-rows", 1, "-", stdin=b"a\n1\nx\n", expect=1)
    assert "standard input: line 3: column 'a': 'x' is not a long" in err, err
    assert got["rows_sent"] == 1 and not got["ok"] and "line 3" in got["error"], got
    _, err = run("--format", "csv", "--table", "t", "--time", "ts", "-", stdin=b"a\n1\n", expect=1)
    assert "--time names the column 'ts'" in err, err


def bad_input(directory):
    _, err = run("--dry-run", "--format", "ilp", "/nonexistent", expect=1)
    assert "cannot open /nonexistent" in err, err
    _, err = run("--dry-run", "--format", "qwpb", "-", stdin=b"\x1f\x8b\x08\x00\x00\x00", expect=1)
    assert "zcat" in err, err
    _, err = run("--dry-run", "--format", "qwpb", "-", stdin=b"QWPB\x01\x01\x01t\x07", expect=1)
    assert "standard input: offset 8: unknown kind" in err, err
    # The line's number counts from the file's start, whichever process and block it falls to.
    lines = [b"t a=%di\n" % i for i in range(100000)]
    lines[77776] = b"t a=oops\n"
    path = os.path.join(directory, "bad.ilp")
    with open(path, "wb") as file:
        file.write(b"".join(lines))
    for processes in (1, 3):
        _, err = run("--dry-run", "--format", "ilp", "--processes", processes, path, expect=1)
        assert "%s: line 77777: " % path in err, err
    got, err = dry("--format", "ilp", "--processes", 3, "--skip-bad", os.path.join(directory, "skipped"), path)
    assert got["rows_sent"] == 99999 and got["rows_bad"] == 1, got
    assert open(os.path.join(directory, "skipped"), "rb").read() == lines[77776]
    _, err = run("--dry-run", "--format", "ilp", "--skip-bad", "/nonexistent/x", path, expect=1)
    assert "cannot open /nonexistent/x" in err, err


def rings(directory):
    """Unwaited rows lie in rings; a killed process is told, and its siblings end with the parent."""
    where = os.path.join(directory, "rings")
    out, _ = run("--rings", where, "--format", "ilp", "--processes", 3, "--producer", "me", "--no-wait",
                 "--json", "-", stdin=b"t a=1i\n")
    assert json.loads(out)["rows_sent"] == 1, out
    assert len(glob.glob(where + "/default/*.ring")) == 3, os.listdir(where + "/default")
    _, err = run("--rings", "/proc/nowhere", "--format", "ilp", "-", stdin=b"t a=1i\n", expect=1)
    assert "/proc/nowhere" in err, err

    def children(pid):
        try:
            with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
                return list(map(int, file.read().split()))
        except FileNotFoundError:
            return []

    def started():
        process = subprocess.Popen([FEED, "--rings", where, "--format", "ilp", "--processes", "2", "--no-wait",
                                    "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while len(children(process.pid)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process, children(process.pid)

    process, workers = started()
    os.kill(workers[1], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and b"process 1 died of signal 9" in err, (process.returncode, err)
    process, workers = started()
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while any(os.path.exists("/proc/%d" % pid) and "Z" not in open("/proc/%d/stat" % pid).read().split(")")[1][:3]
              for pid in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.01)


def interrupted(directory):
    """SIGINT: the rest of the input is left; a second one: no waiting for acknowledgements."""
    where = os.path.join(directory, "rings-interrupted")
    process = subprocess.Popen([FEED, "--rings", where, "--format", "ilp", "--json", "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"t a=1i\n")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not glob.glob(where + "/default/*.ring"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)  # not to synchronise: so that the first signal finds it reading
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and b"interrupted" in err, (process.returncode, err)
    assert not json.loads(out)["ok"], out


def progress():
    """On a terminal there is a line that shows what is going on."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([FEED, "--dry-run", "--format", "ilp", "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    process.stdin.write(b"t a=1i\n")
    process.stdin.flush()
    seen = b""
    deadline = time.monotonic() + 60
    while b"1 rows" not in seen and time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            seen += os.read(ours, 4096)
    process.stdin.close()
    assert process.wait(60) == 0
    os.close(ours)
    assert b"1 rows" in seen and b"rows/s" in seen, seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    FEED = os.path.join(os.path.abspath(parser.parse_args().build), "bin", "qwp-feed")
    temporary = tempfile.mkdtemp(prefix="qwp-feed-")
    try:
        usage()
        dry_runs(temporary)
        csv_types()
        bad_input(temporary)
        rings(temporary)
        interrupted(temporary)
        progress()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    print("command line, dry runs and mistakes as expected")
