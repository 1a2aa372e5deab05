#!/usr/bin/env python3
"""Aim: metrics and health answer strictly in their format, tell the truth, and answer whatever else stands still.
Method: scrape with a strict reader; compare with the files of the store, the sink's counts and what producers
say; stall the sink (SIGSTOP) and the disk (a preloaded library); attack the server."""
import glob
import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request

from openmetrics import Metrics
from stack import Stack, arguments, context_switches, finish, wait_until

ROWS, PRODUCERS = 20000, 3
P = "qwp_sidecar_"
ANSWER_S = 20  # a generous bound for the client; what is measured is printed


class Observed(Stack):
    def __init__(self, build, sidecar=(), **options):
        super().__init__(build, sidecar=["--metrics", "127.0.0.1:0", *sidecar], **options)

    @property
    def port(self):
        said = re.findall(r'msg="metrics and health over HTTP" address=\S+ port=(\d+)', self.log_text())
        return int(said[-1])

    def get(self, path):
        started = time.monotonic()
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.port, path), timeout=ANSWER_S) as answer:
                status, text = answer.status, answer.read().decode()
                self.content_type = answer.headers["Content-Type"]
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        self.answer_ms = (time.monotonic() - started) * 1000
        return status, text

    def scrape(self):
        status, text = self.get("/metrics")
        assert status == 200 and "s3cret" not in text
        assert self.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        return Metrics(text)


def figures_agree(build):
    """With the sink's counts, with what the producers say, with the files on disk; during an outage and after."""
    conf = "sf_dir={dir}/store;sf_max_segment_bytes=256k;token=s3cret;"
    with Observed(build, conf=conf, sink=["--token", "s3cret"]) as stack:
        held = [stack.producer("--name", 'p%d "quoted\\' % i, "--rows", ROWS, "--tables", 2, "--hold")
                for i in range(PRODUCERS)]
        for process in held:
            process.stdout.readline()  # its rows are acknowledged
        rows = ROWS * PRODUCERS
        assert stack.sink.summary()["rows"] == rows
        wait_until(lambda: stack.scrape().get(P + "producer_rows_acked_total") == rows, "figures settle")
        metrics = stack.scrape()
        assert metrics[P + "rows_stored_total"] == rows
        for name in ("rows_published", "rows_stored", "rows_acked"):
            assert metrics.get(P + "producer_%s_total" % name) == rows, name
        assert metrics.get(P + "producer_rows_stored_total", producer='p1 "quoted\\') == ROWS
        assert metrics.get(P + "table_rows_stored_total") == rows
        assert metrics[P + "frames_sent_total"] == metrics[P + "frames_acked_total"]
        assert metrics[P + "frames_stored_total"] == metrics[P + "frames_acked_total"]
        for histogram in ("seen_to_stored", "stored_to_acked", "seen_to_acked"):
            assert metrics[P + "frame_%s_seconds_count" % histogram] == metrics[P + "frames_stored_total"]
        assert metrics.get(P + "connection_state", **{P + "connection_state": "up"}) == 1
        assert metrics[P + "store_oldest_age_seconds"] == 0 and metrics[P + "producers"] == PRODUCERS
        assert stack.get("/readyz") == (200, "ready\n") and stack.get("/healthz") == (200, "ok\n")
        assert stack.get("/nothing")[0] == 404

        # Files: what the figures say is what lies there.
        def files_agree():
            metrics = stack.scrape()
            segments = glob.glob(os.path.join(stack.directory, "store", "default", "*.sfa"))
            return metrics.get(P + "store_segments") == len(segments) and \
                metrics[P + "store_bytes"] == sum(os.path.getsize(name) for name in segments)
        wait_until(files_agree, "figures of the files")

        # An outage: everything waits, the process is well.
        stack.sink.__exit__()
        late = stack.producer("--name", "late", "--rows", ROWS, "--tables", 1)
        wait_until(lambda: stack.scrape()[P + "rows_stored_total"] == rows + ROWS, "rows are stored")
        metrics = stack.scrape()
        assert metrics[P + "frames_waiting"] > 0 and metrics[P + "store_oldest_age_seconds"] > 0
        assert stack.get("/healthz") == (200, "ok\n")
        wait_until(files_agree, "figures of the files in an outage")

        def inspected():
            out = stack.tool("inspect", "--json", os.path.join(stack.directory, "store", "default"))
            return json.loads(out.stdout)["frames_waiting"]
        wait_until(lambda: inspected() == stack.scrape()[P + "frames_waiting"], "frames in the files")
        stack.start_sink("127.0.0.1:%d" % stack.sink.port)
        finish(late, "late producer")
        wait_until(lambda: stack.scrape()[P + "rows_acked_total"] == rows + ROWS, "everything arrives")
        metrics = stack.scrape()
        assert metrics[P + "connects_total"] >= 2 and metrics[P + "disconnects_total"] >= 1
        assert metrics[P + "connect_attempts_total"] >= metrics[P + "connects_total"]

        # Nobody asks: nobody wakes.
        time.sleep(2)
        before = context_switches(stack.sidecar.pid)
        time.sleep(3)
        assert context_switches(stack.sidecar.pid) == before
        assert stack.stop_sidecar() == 0


def refused_credentials_are_not_ready(build):
    with Observed(build, sink=["--token", "right"], conf="token=s3cret;") as stack:
        wait_until(lambda: stack.get("/readyz")[0] == 503, "not ready")
        _, text = stack.get("/readyz")
        assert text.startswith("not ready: localhost:%d refuses the credentials: " % stack.sink.port), text
        assert "s3cret" not in text and text.count("\n") == 1
        assert stack.get("/healthz") == (200, "ok\n")
        metrics = stack.scrape()
        assert metrics[P + "credentials_refused"] == 1 and metrics[P + "ready"] == 0


def answers_while_others_stall(build):
    stall = {"STALL_DISK": None}
    library = os.path.join(os.path.abspath(build), "tests", "stall_disk.so")
    conf = "sf_dir={dir}/store;sf_max_segment_bytes=64k;sf_durability=periodic;sf_sync_interval_millis=20;"
    with Observed(build, conf=conf) as stack:
        stack.sidecar.terminate()
        stack.sidecar.wait()
        stall["STALL_DISK"] = os.path.join(stack.directory, "stalled")
        os.environ.update(stall, LD_PRELOAD=library)
        try:
            stack.start_sidecar()
        finally:
            del os.environ["LD_PRELOAD"]
        stack.producer("--name", "busy", "--forever", "--pause-us", 200, "--symbols", 100000)
        wait_until(lambda: stack.scrape()[P + "rows_acked_total"] > 1000, "rows flow")
        asked = []

        def ask():
            for path in ("/healthz", "/readyz", "/metrics"):
                status, _ = stack.get(path)
                asked.append(stack.answer_ms)
                assert status == 200, path

        with open(stall["STALL_DISK"], "w"):
            pass

        def stands_still():  # new symbols go to a file, so that rows stop soon
            before = stack.scrape()[P + "rows_stored_total"]
            time.sleep(0.2)
            return stack.scrape()[P + "rows_stored_total"] == before
        wait_until(stands_still, "the disk holds up the rows")
        for _ in range(20):
            ask()
        assert stands_still()
        os.unlink(stall["STALL_DISK"])
        print("disk stalled: slowest answer %.1f ms" % max(asked))
        before = stack.scrape()[P + "rows_acked_total"]
        wait_until(lambda: stack.scrape()[P + "rows_acked_total"] > before, "rows flow again")

        asked.clear()
        stack.sink.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(20):
                ask()
        finally:
            stack.sink.process.send_signal(signal.SIGCONT)
        print("network stalled: slowest answer %.1f ms" % max(asked))


def sockets(pid):
    count = 0
    for name in os.listdir("/proc/%d/fd" % pid):
        try:
            count += os.readlink("/proc/%d/fd/%s" % (pid, name)).startswith("socket:")
        except FileNotFoundError:
            pass  # closed meanwhile
    return count


def exchange(port, request, pieces=False):
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as client:
        answer = b""
        try:
            if pieces:
                for byte in request:
                    client.sendall(bytes([byte]))
            else:
                client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            while True:
                got = client.recv(65536)
                if not got:
                    return answer
                answer += got
        except (ConnectionResetError, BrokenPipeError):
            return answer


def hostile_clients_are_refused(build):
    good = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with Observed(build) as stack:
        port = stack.port
        for status, request in [
                (b"200 OK", good), (b"200 OK", good.replace(b"/healthz", b"/metrics?x=1")),
                (b"200 OK", b"GET /healthz HTTP/1.0\r\n\r\n"), (b"404 ", good.replace(b"/healthz", b"/../etc/passwd")),
                (b"405 ", good.replace(b"GET", b"POST")), (b"505 ", good.replace(b"1.1", b"2.0")),
                (b"400 ", good.replace(b"Host: x\r\n", b"")), (b"400 ", b"nonsense\r\n\r\n"),
                (b"413 ", good.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n")),
                (b"431 ", good[:-2] + b"X: " + b"y" * 9000 + b"\r\n\r\n"),
                (b"414 ", good.replace(b"/healthz", b"/" + b"a" * 500)), (b"400 ", b"\x16\x03\x01\x02\x00\r\n\r\n")]:
            answer = exchange(port, request)
            assert answer.startswith(b"HTTP/1.1 " + status), (request[:60], answer[:60])
            length = int(re.search(rb"Content-Length: (\d+)", answer)[1])
            assert len(answer.split(b"\r\n\r\n", 1)[1]) == length
        assert exchange(port, good.replace(b"GET", b"HEAD")).endswith(b"\r\n\r\n")
        assert exchange(port, good, pieces=True).startswith(b"HTTP/1.1 200")
        # Whoever holds connections for nothing does not keep others out.
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        for client in slow[::2]:
            client.send(b"GET /metrics HT")
        assert exchange(port, good).startswith(b"HTTP/1.1 200")
        lazy = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for client in lazy:  # asks and does not read
            client.send(good.replace(b"/healthz", b"/metrics"))
        assert exchange(port, good).startswith(b"HTTP/1.1 200")
        for client in slow + lazy:
            client.close()
        # What is left of them goes with time, and then nothing wakes the sidecar.
        wait_until(lambda: sockets(stack.sidecar.pid) <= 2, "connections are closed")
        assert stack.get("/healthz") == (200, "ok\n")


def an_address_that_cannot_be_had(build):
    with Observed(build) as stack:
        taken = "127.0.0.1:%d" % stack.port
        for address, words in [(taken, "cannot listen on " + taken), ("nowhere:1", "is no address"),
                               ("127.0.0.1", "is no address"), ("127.0.0.1:99999", "is no address")]:
            out = stack.tool("run", "--conf", stack.connect_string(), "--rings", os.path.join(stack.rings, "other"),
                             "--metrics", address, code=1, timeout=60)
            assert words in out.stderr, (address, out.stderr)


if __name__ == "__main__":
    options = arguments(__doc__)
    figures_agree(options.build)
    refused_credentials_are_not_ready(options.build)
    hostile_clients_are_refused(options.build)
    an_address_that_cannot_be_had(options.build)
    if os.path.exists(os.path.join(options.build, "tests", "stall_disk.so")):
        answers_while_others_stall(options.build)
    else:
        print("no stalled disk: a library cannot be preloaded into an instrumented program")
