#!/usr/bin/env python3
"""Everything between the log and the server goes wrong, over and over, while eight producers write.

One fault after the other, by a seed: of the server (qwp-sink --fault), of the connection, of the sidecar
itself (kill -9, SIGSTOP). After each rows must be acknowledged again: no fault leaves the loop stuck. At
the end every row that was published is there, in order, and none came twice on one connection: what came
again came after a reconnect. All the while the server refuses the rows of a table of its own: of these each
has arrived or is set aside, and all arrive when they are put back.

QWP_CHAOS_SECONDS=N: so long (20), QWP_CHAOS_SEED=N: another order of things."""
import os
import random
import re
import signal
import time

from qwp_ctypes import QwpError
from stack import Stack, arguments, wait_until

PRODUCERS = 8
REFUSAL = "status=3,table=refused,text=not here"
REFUSED_A_STEP = 10
SECONDS = float(os.environ.get("QWP_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("QWP_CHAOS_SEED", "0")) or random.randrange(1, 2**31)
CONF = ("sf_max_segment_bytes=256k;sf_max_total_bytes=1g;reconnect_initial_backoff_millis=10;"
        "reconnect_max_backoff_millis=100;auth_timeout_ms=1000;connect_timeout=1000;")


def server_faults(rng, tls):
    """One fault for qwp-sink, of each kind with the same chance."""
    ms = rng.randrange(50, 600)
    count = rng.randrange(1, 4)
    kinds = [
        ["refuse"],
        ["stall=" + phase for phase in ("accept", "upgrade", "answers", "reading")]
        + (["stall=tls"] if tls else []),
        ["close=accept", "close=accept,reset=1", "close=upgrade", "close=upgrade,reset=1"],
        ["close=message,chance=20", "close=message,chance=20,reset=1", "close=message,chance=20,code=1001",
         "close=message,chance=20,code=1011", "close=message,frame=0", "close=message,message=0"],
        ["cut=%s,byte=%d,spread=200000" % (way, byte) for way in ("in", "out") for byte in (0, 300)]
        + ["cut=in,byte=0,spread=200000,reset=1", "cut=out,byte=0,spread=4000"],
        ["http=%d" % status for status in (401, 403, 404, 426, 500, 503)]
        + ["http=421,header=X-QuestDB-Role: REPLICA", "http=302,header=Location: http://localhost/"],
        ["upgrade=" + kind for kind in ("nonsense", "oversized", "accept", "version", "trickle")],
        ["ack=drop,chance=50", "ack=late,ms=50", "ack=beyond", "ack=stale", "ack=backwards", "ack=negative"],
        ["control=ping", "control=pong", "control=fragment"],
        ["answer=" + kind + ",chance=30"
         for kind in ("nonsense", "oversized", "short", "text", "masked", "reserved", "ping")],
        ["status=%d,chance=20,text=try again" % status for status in (0x06, 0x09, 0x0C, 0x0D)],
    ] + ([["tls=keyupdate", "tls=ticket"]] if tls else [])
    fault = rng.choice(rng.choice(kinds))
    fault += rng.choice([",for=%d" % ms, ",for=%d" % ms, ",times=%d" % count])
    # So that those who wait for an established connection to end are met as well.
    return fault, rng.random() < 0.5


class Chaos:
    def __init__(self, stack, rng):
        self.stack, self.rng = stack, rng
        self.counts, self.worst = {}, (0, "")
        self.refused = stack.python_producer("refused")
        self.table = self.refused.table("refused", [("id", "long", 0)])
        self.refused_rows = 0
        self.clear_faults()

    def acked(self):
        return self.stack.status()["rows_acked"]

    def recovers(self, what):
        """Rows are acknowledged again, some of those included that were published since."""
        start, target = time.monotonic(), self.stack.status()["rows_stored"] + 1
        wait_until(lambda: self.acked() >= target, "rows are acknowledged again after " + what)
        took = time.monotonic() - start
        self.worst = max(self.worst, (took, what))

    def clear_faults(self):
        self.stack.sink.clear_faults()
        self.stack.sink.fault(REFUSAL)

    def write_refused(self):
        at = [self.refused_rows + i for i in range(REFUSED_A_STEP)]
        self.refused.rows([(self.table, {"id": i}, ("us", 1700000000000000 + i)) for i in at])
        self.refused_rows += REFUSED_A_STEP

    def put_back(self):
        """Everything that is set aside, once the server takes it."""
        try:
            self.refused.wait_acked()
        except QwpError as error:
            assert str(error).startswith("9:"), error  # refused
        self.stack.sink.clear_faults()
        folder = next(path for home in (self.stack.directory, self.stack.rings)  # in the store, wherever that is
                      for path, _, _ in os.walk(home) if path.endswith("/rejected"))
        assert os.listdir(folder) != []
        out = self.stack.tool("rejected", "put-back", "--rings", self.stack.rings, "--conf",
                              self.stack.connect_string()).stdout
        print(out.strip())
        assert os.listdir(folder) == [], os.listdir(folder)
        self.refused.close()

    def of_the_server(self):
        sink = self.stack.sink
        fault, break_too = server_faults(self.rng, self.stack.tls)
        if break_too:
            sink.fault("close=message,times=1")
        sink.fault(fault)
        time.sleep(self.rng.uniform(0.05, 0.7))  # how long it lasts is part of the chaos
        self.clear_faults()
        return "qwp-sink " + fault

    def of_two(self):
        return self.of_the_server() + " and " + self.of_the_server()

    def killed(self):
        self.stack.sidecar.kill()
        self.stack.sidecar.wait()
        self.stack.start_sidecar()
        return "kill -9 of the sidecar"

    def killed_in_trouble(self):
        fault, _ = server_faults(self.rng, self.stack.tls)
        self.stack.sink.fault(fault)
        time.sleep(self.rng.uniform(0, 0.2))
        self.killed()
        self.clear_faults()
        return "kill -9 with qwp-sink " + fault

    def stopped(self):
        self.stack.sidecar.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.05, 0.5))
        self.stack.sidecar.send_signal(signal.SIGCONT)
        return "SIGSTOP of the sidecar"

    def server_stopped(self):
        self.stack.sink.process.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.05, 0.5))
        self.stack.sink.process.send_signal(signal.SIGCONT)
        return "SIGSTOP of the server"

    def hangup(self):
        self.stack.sidecar.send_signal(signal.SIGHUP)
        return "SIGHUP"

    def step(self):
        kinds = [self.of_the_server] * 12 + [self.of_two] * 2 + [
            self.killed, self.killed_in_trouble, self.stopped, self.server_stopped, self.hangup]
        self.write_refused()
        what = self.rng.choice(kinds)()
        self.recovers(what)
        name = re.split(r"[ ,=]", what.replace("qwp-sink ", ""))[0]
        self.counts[name] = self.counts.get(name, 0) + 1


def check(stack, producers, chaos, what):
    chaos.put_back()
    for process in producers:
        process.send_signal(signal.SIGTERM)
    published = 0
    for process in producers:
        out, _ = process.communicate(timeout=150)
        assert process.returncode == 0, "a producer ended with %s" % process.returncode
        published += int(re.search(r'"published":(\d+)', out).group(1))
    assert stack.stop_sidecar() == 0
    log = stack.log_text()  # fails when it is no UTF-8, whatever a server has sent
    assert 'msg="closed: ' in log, log[-4000:]
    summary = stack.sink.stop()
    print("%s: %d rows, %d again, %d connections, %d steps (%s), longest recovery %.2f s after %s" % (
        what, published, summary["doubled"], summary["connections"], sum(chaos.counts.values()),
        ", ".join("%s %d" % item for item in sorted(chaos.counts.items())), *chaos.worst), flush=True)
    verified = summary["rows"] - summary["doubled"] - summary["unverified"]
    assert verified == published, (published, summary)
    assert summary["unverified"] >= chaos.refused_rows, (chaos.refused_rows, summary)
    assert summary["sequences"] == PRODUCERS, summary
    for fault in ("lost", "repeated", "disordered"):
        assert summary[fault] == 0, (fault, summary)


def run(build, what, seconds, rng, tls=True, conf="", sidecar=()):
    with Stack(build, sink=["--verify", "seq,producer", "--fault-seed", rng.randrange(1, 2**31)], tls=tls,
               conf=CONF + conf, sidecar=sidecar) as stack:
        producers = [stack.producer("--name", "p%d" % i, "--forever", "--unit", 3, "--pause-us", 1000,
                                    "--symbols", 20000) for i in range(PRODUCERS)]
        chaos = Chaos(stack, rng)
        chaos.recovers("the start")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            chaos.step()
        check(stack, producers, chaos, what)


if __name__ == "__main__":
    options = arguments(__doc__)
    print("seed %d" % SEED, flush=True)
    rng = random.Random(SEED)
    run(options.build, "TLS, memory", SECONDS / 2, rng)
    run(options.build, "plain, disk, two threads", SECONDS / 2, rng, tls=False, conf="sf_dir={dir}/sf;",
        sidecar=["--threading", "dedicated"])
