#!/usr/bin/env python3
"""A store on a file system of 16 MiB that another process fills under load: rows wait, one line says why, what
is stored is still sent, nothing dies, and once there is room again rows flow by themselves. No row is lost.

Needs to mount a tmpfs in a namespace of its own; skipped (77) where that is not allowed."""
import errno
import os
import subprocess
import sys
import time

from stack import Stack, arguments, finish, wait_until

MIB = 1 << 20
PRODUCERS = 3
STOPPED, AGAIN = 'msg="store takes no more rows', 'msg="store takes rows again"'


def in_namespace():
    """Runs this script again with mounts of its own."""
    if os.environ.get("QWP_MOUNT_NAMESPACE"):
        return
    probe = subprocess.run(["unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "none",
                            "/mnt"], capture_output=True, text=True)
    if probe.returncode != 0:
        print("skipped: no file system of our own can be mounted here:", probe.stderr.strip())
        sys.exit(77)
    os.environ["QWP_MOUNT_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])


def fill(path):
    """Takes every byte that is left; what our own store lets go of is taken in the next call."""
    taken = 0
    with open(path, "ab", buffering=0) as file:
        for block in (MIB, 4096):
            try:
                while True:
                    taken += file.write(b"\xff" * block)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
    return taken


def shown(stack, **wanted):
    status = stack.status()
    return all(status[key] == value for key, value in wanted.items())


if __name__ == "__main__":
    options = arguments(__doc__)
    in_namespace()
    with Stack(options.build, sink=["--ndjson", "{dir}/rows"], sidecar=["--linger", "0"],
               conf="sf_dir={dir}/disk;sender_id=full;sf_max_segment_bytes=256k;"
                    "reconnect_max_backoff_millis=100;") as stack:
        port = stack.sink.port
        stack.stop_sidecar()
        disk = os.path.join(stack.directory, "disk")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", disk], check=True)
        try:
            stack.start_sidecar()
            # No server for a while, so that what is stored stays and the disk fills up.
            stack.sink.stop()
            delivered = stack.sink.rows("rows")
            os.rename(os.path.join(stack.directory, "rows"), os.path.join(stack.directory, "rows-0"))
            producers = [stack.producer("--name", "p%d" % i, "--rows", 120000, "--symbols", 20000)
                         for i in range(PRODUCERS)]
            filler = os.path.join(disk, "filler")
            wait_until(lambda: fill(filler) >= 0 and shown(stack, store_state="cannot be written"),
                       "the store is stopped by the full disk")
            stored = stack.status()["rows_stored"]
            assert "No space left" in stack.status()["store_error"], stack.status()

            # Sending goes on: all that is stored arrives while the disk stays full.
            stack.start_sink("127.0.0.1:%d" % port)
            wait_until(lambda: fill(filler) >= 0 and stack.status()["rows_acked"] >= stored,
                       "what is stored is sent")
            assert stack.sidecar.poll() is None, "the sidecar died"

            before = stack.status()["rows_stored"]
            freed = time.monotonic()
            os.truncate(filler, 0)
            wait_until(lambda: stack.status()["rows_stored"] > before, "rows flow again")
            print("rows flow again after %.0f ms" % (1000 * (time.monotonic() - freed)))
            for process in producers:
                finish(process, "producer")
            wait_until(lambda: shown(stack, store_state="ok"), "status says that all is well")
            wait_until(lambda: AGAIN in stack.log_text(), "the log says so")
            log = stack.log_text()
            assert log.count(STOPPED) == log.count(AGAIN) == 1, log
            assert "No space left" in log[log.index(STOPPED):].split("\n")[0], log
            assert stack.stop_sidecar() == 0, stack.log_text()
            stack.sink.stop()
            seen = {}
            for row in delivered + stack.sink.rows("rows"):
                value = row["row"]
                assert value["tag"] == "%s-%d" % (value["producer"], value["seq"] % 20000), row
                seen.setdefault(value["producer"], []).append(value["seq"])
            for i in range(PRODUCERS):
                assert seen["p%d" % i] == list(range(120000)), "p%d: lost, doubled or disordered" % i
        finally:
            for process in stack.started:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            subprocess.run(["umount", "-l", disk])
