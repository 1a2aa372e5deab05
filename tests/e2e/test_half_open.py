#!/usr/bin/env python3
"""Connections whose other end is gone without a word are noticed within 15 s, by default settings.

All at once, as each takes that long: the server's host vanishes (in network namespaces of our own, where the
privilege is there) with rows waiting and with none; the server's process stops with rows waiting; and the
sidecar itself is stopped for longer than that, which must not end its connection. Likewise, within 30 s: an answer
is lost while pings are answered; but where none is due, as behind the symbols of a new connection, that is no loss."""
import os
import signal
import subprocess
import sys
import time

from stack import Stack, arguments, finish, wait_until

STOP_S = 18
SILENCE_S = 20  # the patience of sidecar/qwp_sender.c, which begins with the first pong, 5 s later


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


class Hosts:
    """Two hosts on a wire: network namespaces `here` and `there`. Leaving the wire says nothing to anybody."""

    def __init__(self):
        self.here, self.there = ("qwp-test-%d-%s" % (os.getpid(), side) for side in "ab")
        self.good = True

    def setup(self):
        steps = ["netns add %s" % self.here, "netns add %s" % self.there,
                 "-n {h} link add wire type veth peer name wire netns {t}"]
        for side, address, other in (("{h}", "10.77.0.1", "10.77.0.2"), ("{t}", "10.77.0.2", "10.77.0.1")):
            steps += ["-n %s link set lo up" % side,
                      "-n %s addr add %s/24 dev wire" % (side, address),
                      "-n %s link set wire up" % side]
        for step in steps:
            done = run("ip", *step.format(h=self.here, t=self.there).split())
            if done.returncode != 0:
                print("no hosts of our own (ip %s: %s): that part is skipped" % (step, done.stderr.strip()))
                return False
        return True

    def exec_here(self, command):
        return ["ip", "netns", "exec", self.here, *command]

    def vanish(self):
        """The other host has no address any more: what is sent to it goes nowhere."""
        assert run("ip", "-n", self.there, "addr", "flush", "dev", "wire").returncode == 0

    def remove(self):
        for name in (self.here, self.there):
            run("ip", "netns", "del", name)


class FarStack(Stack):
    """The sink there, the sidecar here."""

    def __init__(self, hosts, build, **options):
        self.hosts = hosts
        super().__init__(build, **options)

    def start_sink(self, listen=None):
        wrapper = os.path.join(self.directory, "far-sink")
        with open(wrapper, "w") as file:
            file.write('#!/bin/sh\nexec ip netns exec %s %s/qwp-sink "$@" --listen 10.77.0.2:0\n'
                       % (self.hosts.there, self.bin))
        os.chmod(wrapper, 0o755)
        near, self.bin = self.bin, self.directory
        os.rename(wrapper, os.path.join(self.directory, "qwp-sink"))
        try:
            return super().start_sink(listen)
        finally:
            self.bin = near

    def connect_string(self):
        return super().connect_string().replace("localhost:", "10.77.0.2:")

    def sidecar_command(self):
        return self.hosts.exec_here(super().sidecar_command())


def rows_arrive(stack):
    producer = stack.producer("--name", "p0", "--rows", 100, "--hold")
    producer.stdout.readline()
    assert stack.status()["connection"] == "up"
    return producer


def more_rows(stack):
    return stack.producer("--name", "p1", "--rows", 100, "--hold")


class Watch:
    """When a connection that lost its other end is down."""

    def __init__(self, name, stack):
        self.name, self.stack, self.start, self.took = name, stack, time.monotonic(), None

    def look(self):
        if self.took is None and 'msg="down"' in self.stack.log_text():
            self.took = time.monotonic() - self.start
            reason = self.stack.log_text().split('msg="down" ')[1].splitlines()[0]
            print("  %s: noticed after %.1f s: %s" % (self.name, self.took, reason[:160]))
        return self.took is not None


def forget_an_answer(stack):
    """One row whose answer is lost, and nothing behind it that would be answered."""
    rows_arrive(stack)
    stack.sink.fault("ack=drop,times=1")
    return stack.producer("--name", "p1", "--rows", 1, "--hold")


def connect_anew(stack):
    """A connection that has sent its symbols, and no rows."""
    rows_arrive(stack)
    port = stack.sink.port
    stack.sink.stop()
    stack.start_sink("127.0.0.1:%d" % port)
    wait_until(lambda: stack.status()["connection"] == "up" and stack.status()["connects"] == 2, "it connects again")
    wait_until(lambda: stack.sink.summary()["messages"] > 0, "its symbols arrive")
    return time.monotonic()


def main():
    options = arguments(__doc__)
    hosts, stacks, watches = Hosts(), [], []

    def start(kind, *arguments, **more):
        stacks.append(kind(*arguments, tls=False, **more))
        return stacks[-1]

    try:
        if hosts.setup():
            idle, busy = (start(FarStack, hosts, options.build) for _ in range(2))
            for stack in (idle, busy):
                rows_arrive(stack)
            hosts.vanish()
            watches += [Watch("host gone, idle", idle), Watch("host gone, rows wait", busy)]
            more_rows(busy)
        stopped = start(Stack, options.build)
        rows_arrive(stopped)
        stopped.sink.process.send_signal(signal.SIGSTOP)
        more_rows(stopped)
        watches.append(Watch("server stopped, rows wait", stopped))

        forgetful, fresh = start(Stack, options.build), start(Stack, options.build)
        unanswered = forget_an_answer(forgetful)
        since = connect_anew(fresh)

        asleep = start(Stack, options.build, sink=["--verify", "seq,producer"])
        rows_arrive(asleep)
        asleep.sink.fault("stall=answers")
        held = more_rows(asleep)
        wait_until(lambda: asleep.sink.summary()["rows"] == 200, "rows wait for their answer")
        asleep.sidecar.send_signal(signal.SIGSTOP)
        end = time.monotonic() + STOP_S

        wait_until(lambda: all([watch.look() for watch in watches]), "each loss is noticed")
        time.sleep(max(0, end - time.monotonic()))  # the length of the stop itself
        asleep.sidecar.send_signal(signal.SIGCONT)
        asleep.sink.clear_faults()
        finish(held, "producer of the sidecar that was stopped")
        summary = asleep.sink.summary()
        assert summary["connections"] == 1 and summary["lost"] + summary["doubled"] == 0, summary
        print("  sidecar stopped for %d s: the same connection goes on" % STOP_S)
        stopped.sink.process.send_signal(signal.SIGCONT)

        unanswered.stdout.readline()  # its row is acknowledged
        assert 'messages it does not' in forgetful.log_text(), forgetful.log_text()
        assert forgetful.status()["connects"] == 2, forgetful.status()
        time.sleep(max(0, since + SILENCE_S + 12 - time.monotonic()))
        assert fresh.status()["connects"] == 2, fresh.log_text()
    finally:
        for stack in stacks:
            stack.__exit__(sys.exc_info()[0])
        hosts.remove()


if __name__ == "__main__":
    main()
