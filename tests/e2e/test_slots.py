#!/usr/bin/env python3
"""Slots of files: one that a released client left is shown and delivered; ours likewise after kill -9."""
import json
import os
import shutil
import tarfile

from stack import Stack, arguments, finish, wait_until

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")


def call(stack, *words, code=0):
    return json.loads(stack.tool(*words, code=code, timeout=120).stdout)


def clients_slot(build):
    """3,000 rows in 300 frames, written by a released client."""
    with Stack(build, sink=["--ndjson", "{dir}/rows"]) as stack:
        with tarfile.open(os.path.join(DATA, "slot-3000-rows.tar.gz")) as packed:
            packed.extractall(stack.directory)
        slot = os.path.join(stack.directory, "desk-ingest-0")
        stack.give_to_sidecar(slot)
        shown = call(stack, "inspect", slot, "--json")
        assert (shown["frames"], shown["frames_waiting"], shown["rows"]) == (300, 300, 3000), shown
        assert shown["tables"] == {"trades": 3000} and shown["damage"] == [], shown
        drained = call(stack, "drain", slot, "--json", "--conf", stack.connect_string())
        assert (drained["frames_delivered"], drained["frames_waiting"]) == (300, 0), drained
        again = call(stack, "drain", slot, "--json", "--conf", stack.connect_string())
        assert again["frames_delivered"] == 0, again
        stack.stop_sidecar()
        stack.sink.stop()
        rows = stack.sink.rows("rows")
        assert len(rows) == 3000
        for n, row in enumerate(rows):
            assert row == {"table": "trades", "ts": 1700000000000000000 + 1000 * n, "ts_unit": "ns",
                           "row": {"symbol": "S%d" % (n % 37), "side": "buy" if n % 2 else "sell",
                                   "price": 100 + n / 2, "seq": n}}, (n, row)


def our_slot(build):
    """Frames in several small segments, with new symbols all along, the sidecar killed."""
    with Stack(build, sink=["--ndjson", "{dir}/rows"], sidecar=["--linger", "0"],
               conf="sf_dir={dir}/sf;sender_id=ours;sf_max_segment_bytes=64k;") as stack:
        stack.sink.stop()
        rows = 20000
        producer = stack.producer("--name", "p0", "--rows", rows, "--symbols", rows)
        wait_until(lambda: stack.status()["rows_stored"] == rows, "rows are stored")
        producer.kill()
        stack.stop_sidecar(9)
        slot = os.path.join(stack.directory, "sf", "ours")
        shown = call(stack, "inspect", slot, "--json")
        assert shown["rows"] == rows and shown["damage"] == [], shown
        assert len(shown["segments"]) >= 3 and shown["dictionary"]["symbols"] == rows + 1, shown
        stack.start_sink("127.0.0.1:%d" % stack.sink.port)
        call(stack, "drain", slot, "--json", "--conf", stack.connect_string())
        stack.sink.stop()
        for n, row in enumerate(stack.sink.rows("rows")):
            assert (row["row"]["seq"], row["row"]["tag"]) == (n, "p0-%d" % n), row
        assert n == rows - 1


def orphans(build):
    """What others left in sf_dir is delivered beside our own rows; a slot that cannot be is marked."""
    with Stack(build, sink=["--ndjson", "{dir}/rows"], sidecar=["--linger", "0"],
               conf="sf_dir={dir}/sf;sender_id=ours;drain_orphans=on;"
                    "max_background_drainers=2;") as stack:
        stack.stop_sidecar()
        sf = os.path.join(stack.directory, "sf")
        with tarfile.open(os.path.join(DATA, "slot-3000-rows.tar.gz")) as packed:
            for copy in ("a", "b", "c", "broken"):
                packed.extractall(os.path.join(sf, copy + ".tmp"))
                os.rename(os.path.join(sf, copy + ".tmp", "desk-ingest-0"), os.path.join(sf, copy))
                os.rmdir(os.path.join(sf, copy + ".tmp"))
        os.unlink(os.path.join(sf, "broken", "sf-manifest.bin"))
        stack.give_to_sidecar(sf)
        stack.start_sidecar()
        finish(stack.producer("--name", "p0", "--rows", 1000), "producer")
        wait_until(lambda: stack.log_text().count('msg="orphan drained"') == 3, "orphans drained")
        wait_until(lambda: os.path.exists(os.path.join(sf, "broken", ".failed")), "a slot is marked")
        assert stack.stop_sidecar() == 0, stack.log_text()
        counts = stack.sink.stop()["tables"]
        assert counts == {"trades": 9000, "seq_0": 1000}, counts


def damaged(build):
    """A byte of a sealed segment has flipped: a start delivers every frame before it, sets the rest aside,
    names it, and works."""
    with Stack(build, sink=["--ndjson", "{dir}/rows"], sidecar=["--linger", "0", "--batch-rows", "100"],
               conf="sf_dir={dir}/sf;sender_id=ours;sf_max_segment_bytes=64k;auto_flush_rows=100;"
               ) as stack:
        port = stack.sink.port
        stack.sink.stop()
        rows = 20000
        producer = stack.producer("--name", "p0", "--rows", rows, "--symbols", rows)
        wait_until(lambda: stack.status()["rows_stored"] == rows, "rows are stored")
        stack.stop_sidecar(9)
        producer.kill()
        producer.wait()
        slot = os.path.join(stack.directory, "sf", "ours")
        shown = call(stack, "inspect", slot, "--json")
        hit = shown["segments"][len(shown["segments"]) // 2]
        before = hit["base"] if "base" in hit else hit["first_frame"]
        with open(os.path.join(slot, hit["name"]), "r+b") as file:
            at = 24 + 8 + 8  # in its first frame, however short that is
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))
        shown = call(stack, "inspect", slot, "--json", code=4)
        assert hit["name"] in " ".join(map(str, shown["damage"])), shown["damage"]
        again = os.path.join(stack.directory, "again")
        shutil.copytree(slot, again)
        stack.give_to_sidecar(again)
        stack.start_sink("127.0.0.1:%d" % port)
        stack.start_sidecar()
        finish(stack.producer("--name", "p1", "--rows", 1000, "--symbols", 1000), "producer")
        wait_until(lambda: stack.ring_files() == [], "rings are drained")
        assert stack.stop_sidecar() == 0, stack.log_text()
        line = [text for text in stack.log_text().split("\n") if 'msg="store was damaged' in text]
        assert len(line) == 1 and hit["name"] in line[0], line
        kept = [name for name in os.listdir(slot) if name.endswith(".corrupt")]
        assert hit["name"] + ".corrupt" in kept, kept
        stack.sink.stop()
        seen = {"p0": [], "p1": []}
        for row in stack.sink.rows("rows"):
            value = row["row"]
            assert value["tag"] == "%s-%d" % (value["producer"], value["seq"]), row
            seen[value["producer"]].append(value["seq"])
        assert seen["p1"] == list(range(1000)), len(seen["p1"])
        assert seen["p0"] == list(range(len(seen["p0"]))) and 0 < len(seen["p0"]) < rows, before
        # drain meets the same damage: the same frames, a result that says so, and nothing left to do.
        stack.start_sink("127.0.0.1:%d" % port)
        for code, delivered in ((3, before), (0, 0)):
            drained = call(stack, "drain", again, "--json", "--conf", stack.connect_string(), code=code)
            assert drained["frames_delivered"] == delivered and drained["frames_waiting"] == 0, drained
            assert (drained["frames_damaged"] > 0) == (code == 3), drained


def no_slot(build):
    """What is no slot is an error that names it."""
    with Stack(build) as stack:
        done = stack.tool("drain", stack.directory + "/none", "--conf", stack.connect_string(), code=1, timeout=60)
        assert "/none" in done.stderr, done


if __name__ == "__main__":
    options = arguments(__doc__)
    for scenario in (clients_slot, our_slot, damaged, orphans, no_slot):
        scenario(options.build)
        print(scenario.__name__, "ok")
