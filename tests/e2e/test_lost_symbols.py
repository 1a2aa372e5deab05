#!/usr/bin/env python3
"""The dictionary of a store is lost, cut or damaged while much waits: the next start takes rows at once, and all is
delivered, in order and with the right symbols; also where the sidecar is killed on the way."""
import json
import os
import signal

from stack import Stack, arguments, wait_until

OLD, NEW, BYTES = 300, 40, 16000  # four rows to a segment; a start reads eight segments or so for symbols
COLUMNS = [("seq", "long", 0), ("tag", "symbol", 0), ("filling", "varchar", 0)]
CONF = "sf_dir={dir}/sf;sender_id=lost;sf_max_segment_bytes=64k;reconnect_max_backoff_millis=200;"
POINTS = ["generations.based", "dict.partial", "symbols.saved", "trim.unlinked:3", "generations.stepped",
          "generations.hollowing"]


def row(table, seq):
    return table, {"seq": seq, "tag": "tag-%d" % seq, "filling": chr(97 + seq % 26) * BYTES}


def write(stack, producer, table, first, count):
    """Rows with a symbol of their own, the first of this sidecar, and waits until they are stored."""
    producer.rows([row(table, seq) for seq in range(first, first + count)])
    wait_until(lambda: stack.status()["rows_stored"] == count, "rows are stored")


def has_delivered(stack):
    try:
        shown = stack.status() if stack.is_ready() else {}
        return shown.get("connection") == "up" and shown["frames_waiting"] == 0
    except AssertionError:  # it died just now
        return False


def die(stack, point):
    """A life that ends there; false: it has delivered all, and was killed then."""
    os.environ["QWP_CRASH_AT"] = point
    try:
        stack.sidecar = stack.start(stack.sidecar_command(), stderr=stack.log)
    finally:
        del os.environ["QWP_CRASH_AT"]
    wait_until(lambda: stack.sidecar.poll() is not None or has_delivered(stack), "it dies, or delivers")
    died = stack.sidecar.poll() is not None
    assert stack.stop_sidecar(signal.SIGKILL) == -signal.SIGKILL, stack.log_text()
    return died


def spoil(path, how):
    size = os.path.getsize(path)
    if how == "lost":
        os.unlink(path)
    elif how == "cut":
        os.truncate(path, size // 7)
    else:
        with open(path, "r+b") as file:
            file.seek(size // 9)
            byte = file.read(1)
            file.seek(size // 9)
            file.write(bytes([byte[0] ^ 1]))


def check(path, exact):
    seen = []
    with open(path) as lines:
        for line in lines:
            value = json.loads(line)["row"]
            seq = value["seq"]
            assert value["tag"] == "tag-%d" % seq, (seq, value["tag"])
            assert value["filling"] == chr(97 + seq % 26) * BYTES, seq
            seen.append(seq)
    first = list(dict.fromkeys(seen))
    assert first == list(range(OLD + NEW)), (len(first), first[:5])
    assert not exact or seen == first, "%d rows twice" % (len(seen) - len(first))


def drain(build):
    """`drain` of such a slot, and again: the file is whole then."""
    with Stack(build, sink=["--ndjson", "{dir}/rows"], conf=CONF) as stack:
        port = stack.sink.port
        stack.sink.stop()
        producer = stack.python_producer("p0")
        table = producer.table("t", COLUMNS)
        write(stack, producer, table, 0, OLD + NEW)
        stack.stop_sidecar(signal.SIGKILL)
        producer.close()
        slot = os.path.join(stack.directory, "sf", "lost")
        spoil(os.path.join(slot, ".symbol-dict"), "lost")
        stack.start_sink("127.0.0.1:%d" % port)
        drained = stack.tool("drain", slot, "--json", "--conf", stack.connect_string())
        assert json.loads(drained.stdout)["frames_waiting"] == 0, drained
        assert "lacks symbols" in drained.stderr, drained
        shown = json.loads(stack.tool("inspect", slot, "--json").stdout)
        assert shown["dictionary"]["symbols"] == OLD + NEW and shown["damage"] == [], shown
        stack.sink.stop()
        check(stack.sink.path("rows"), exact=True)
        print("drained")


def run(build, how, points=()):
    with Stack(build, sink=["--ndjson", "{dir}/rows"], conf=CONF) as stack:
        port = stack.sink.port
        stack.sink.stop()
        producer = stack.python_producer("p0")
        table = producer.table("t", COLUMNS)
        write(stack, producer, table, 0, OLD)
        stack.stop_sidecar(signal.SIGKILL)
        path = os.path.join(stack.directory, "sf", "lost", ".symbol-dict")
        spoil(path, how)
        if points:
            assert die(stack, points[0])
        stack.start_sidecar()
        write(stack, producer, table, OLD, NEW)  # of what waits a start has read its part
        if points:
            stack.stop_sidecar(signal.SIGKILL)
            spoil(path, "cut")
        stack.start_sink("127.0.0.1:%d" % port)
        died = [die(stack, point) for point in points[1:]]
        assert died[:2] == [True] * len(died[:2]), died  # the others hang on how fast it is
        if points:
            stack.start_sidecar()
        producer.wait_acked()
        producer.close()
        assert stack.stop_sidecar() == 0
        stack.sink.stop()
        check(stack.sink.path("rows"), exact=not points)
        log = stack.log_text()
        assert log.count("store lacks symbols") >= 1 and "damaged" not in log, log
        print(how, "delivered", sum(died), "crashes on the way")


if __name__ == "__main__":
    options = arguments(__doc__)
    for how in ("lost", "cut", "damaged"):
        run(options.build, how)
    run(options.build, "lost", POINTS)
    drain(options.build)
