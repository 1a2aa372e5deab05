#!/usr/bin/env python3
"""The core of the suite as in a strict pod (sandbox.py): user, PID, mount and network namespaces, io_uring forbidden, 64 MB of
/dev/shm, read-only root, no capabilities; the sidecar is uid 1000, producers are uid 2000, and a group is all they share."""
import os
import subprocess
import sys

from stack import arguments

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("test_two_users", "test_hostile", "test_restart", "test_many_producers", "test_crash")
SETTINGS = {
    "QWP_TEST_USERS": "1000:2000:3000",
    "QWP_TEST_RING_BYTES": str(256 * 1024),  # 64 rings of them in 64 MB
    "QWP_TEST_CONF": "sf_max_segment_bytes=1m;sf_max_total_bytes=8m;",
    "QWP_CRASH_SHORT": "1",
    "QWP_RANDOM_KILLS": "3",
}


def run(build, script):
    """Its exit code."""
    return subprocess.run([os.path.join(HERE, "sandbox.py"), os.path.join(HERE, script + ".py"), "--build",
                           os.path.abspath(build)], env={**os.environ, **SETTINGS}).returncode


if __name__ == "__main__":
    options = arguments(__doc__)
    for script in SCRIPTS:
        print("==", script, flush=True)
        code = run(options.build, script)
        if code != 0:
            sys.exit(code)
