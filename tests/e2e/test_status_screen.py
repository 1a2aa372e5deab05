#!/usr/bin/env python3
"""Aim: on a terminal `status` is a live screen that fits it, is readable, and leaves the terminal as it was.
Method: a pseudo-terminal of several sizes; what is drawn is read back, keys and signals end it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios

from stack import WAIT_S, Stack, arguments

PRODUCERS = 30
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    def __init__(self, stack, rows, columns, **environment):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        command = [os.path.join(stack.bin, "qwp-sidecar"), "status", "--rings", stack.rings, "--interval", "50ms"]
        self.process = stack.start(command, stdin=slave, stdout=slave, stderr=slave,
                                   env={**os.environ, **environment})
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        if select.select([self.master], [], [], 0.05)[0]:
            self.text += os.read(self.master, 65536).decode()

    def picture(self):
        """The next one that is drawn from its beginning to its end, as lines without colours."""
        self.text = ""
        for _ in range(WAIT_S * 20):
            self.read()
            whole = re.search(r"\x1b\[H(.*?)\x1b\[Jq ends", self.text, re.S)
            if whole:
                return [ESCAPE.sub("", line).rstrip() for line in whole[1].split("\r\n")]
        raise AssertionError("nothing is drawn: " + repr(self.text[-300:]))

    def end(self, key=None, number=None):
        if key:
            os.write(self.master, key)
        if number:
            self.process.send_signal(number)
        for _ in range(WAIT_S * 20):
            self.read()
            if self.process.poll() is not None:
                break
        self.read()
        assert self.text.rstrip().endswith("\x1b[?7h\x1b[?25h\x1b[?1049l"), repr(self.text[-100:])
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        os.close(self.slave)
        os.close(self.master)
        return self.process.returncode


if __name__ == "__main__":
    options = arguments(__doc__)
    with Stack(options.build) as stack:
        held = [stack.producer("--name", "p%02d" % i, "--rows", 100, "--hold") for i in range(PRODUCERS)]
        for process in held:
            process.stdout.readline()  # its rows are acknowledged

        terminal = Terminal(stack, 50, 140)
        lines = terminal.picture()
        assert "sidecar" in lines[0] and any(re.search(r"^server .* up for ", line) for line in lines), lines
        assert sum(bool(re.match(r"p\d\d ", line)) for line in lines) == PRODUCERS, lines
        assert any(re.search(r"\[\.{10}\] +0%", line) for line in lines) and len(lines) <= 50, lines
        assert any(re.search(r"^latency +to store [\d.]+ (us|ms|s)", line) for line in lines), lines
        assert "\x1b[32m" in terminal.text  # colours
        # A smaller one: fewer producers and columns, and it says so.
        terminal.resize(20, 80)
        for _ in range(100):
            lines = terminal.picture()
            if len(lines) <= 20:
                break
        assert len(lines) <= 20 and any(re.search(r"and \d+ more", line) for line in lines), lines
        header = [line for line in lines if line.startswith("producer")]
        assert header and "published" not in header[0] and len(header[0]) <= 80, header
        assert terminal.end(key=b"q") == 0

        terminal = Terminal(stack, 24, 80, NO_COLOR="1")
        terminal.picture()
        assert not re.search(r"\x1b\[[0-9;]*m", terminal.text)
        assert terminal.end(number=signal.SIGINT) == 0

        # Piped: plain text, once.
        out = stack.tool("status", "--rings", stack.rings, timeout=WAIT_S)
        assert "\x1b" not in out.stdout and out.stdout.startswith("instance default"), out
        # A sidecar that is gone is told, not hidden.
        stack.sidecar.kill()
        stack.sidecar.wait()
        terminal = Terminal(stack, 24, 80)
        assert "the sidecar is gone" in terminal.picture()[0]
        assert terminal.end(key=b"q") == 3
