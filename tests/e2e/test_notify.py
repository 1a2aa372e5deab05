#!/usr/bin/env python3
"""Aim: a service manager hears that the sidecar is ready, lives and stops. Method: be the manager's socket."""
import os
import socket

from stack import Stack, arguments, temporary_directory


class Manager:
    """Sets the environment as systemd does, for the sidecars that are started meanwhile."""

    def __init__(self, address, watchdog_us=None, watchdog_pid=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(60)
        self.socket.bind(address)
        if not address.startswith("\0"):
            os.chmod(address, 0o777)  # as the real one's
        os.environ["NOTIFY_SOCKET"] = address.replace("\0", "@")
        if watchdog_us:
            os.environ["WATCHDOG_USEC"] = str(watchdog_us)
        if watchdog_pid:
            os.environ["WATCHDOG_PID"] = str(watchdog_pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)

    def hear(self):
        return self.socket.recv(4096).decode()


def run(build, address, threading):
    with Manager(address, watchdog_us=100000) as manager:
        with Stack(build, sidecar=["--threading", threading]) as stack:
            heard = [manager.hear() for _ in range(6)]  # of two threads: in any order
            assert heard.count("READY=1") == 1 and heard.count("WATCHDOG=1") == 5, heard
            assert stack.stop_sidecar() == 0
            while (last := manager.hear()) == "WATCHDOG=1":
                pass
            assert last == "STOPPING=1", last


def without_watchdog(build, directory):
    """Of another process, so that it is none of ours: nothing but the two words comes."""
    with Manager(os.path.join(directory, "quiet"), watchdog_us=1000, watchdog_pid=1) as manager:
        with Stack(build) as stack:
            assert manager.hear() == "READY=1"
            assert stack.stop_sidecar() == 0
            assert manager.hear() == "STOPPING=1"


if __name__ == "__main__":
    options = arguments(__doc__)
    with temporary_directory() as directory:
        run(options.build, os.path.join(directory, "notify"), "shared")
        run(options.build, "\0qwp-test-%d" % os.getpid(), "dedicated")
        without_watchdog(options.build, directory)
