#!/usr/bin/env python3
"""The suite as in a strict pod (sandbox.py): user, PID, mount and network namespaces, io_uring forbidden, 64 MB of /dev/shm,
read-only root, no capabilities; the sidecar is uid 1000, producers are uid 2000, and a group is all they share.

Some scripts, the shorter ones; QWP_SANDBOX_FULL=1: each script of this folder but those below that have no place there."""
import glob
import os
import subprocess
import sys
import time

from stack import arguments

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("test_two_users", "test_hostile", "test_restart", "test_many_producers", "test_crash", "test_all_types",
           "test_slots", "test_notify")
A_SERVER, A_CLIENT = "needs a real server", "builds or installs a released client, from the network"
ELSEWHERE = {
    "test_namespaces": "this one",
    "test_real_compact": A_SERVER, "test_real_kill": A_SERVER, "test_real_reject": A_SERVER,
    "test_real_tsbs": A_SERVER, "test_real_types": A_SERVER,
    "test_slots_python": A_CLIENT, "test_slots_rust": A_CLIENT,
}
SETTINGS = {
    "QWP_TEST_USERS": "1000:2000:3000",
    "QWP_TEST_RING_BYTES": str(256 * 1024),  # 64 rings of them in 64 MB
    "QWP_TEST_CONF": "sf_max_segment_bytes=1m;sf_max_total_bytes=8m;",
    "QWP_CRASH_SHORT": "1",
    "QWP_RANDOM_KILLS": "3",
}
SKIPPED = 77


def chosen():
    if not os.environ.get("QWP_SANDBOX_FULL"):
        return SCRIPTS
    names = {os.path.basename(path)[:-len(".py")] for path in glob.glob(os.path.join(HERE, "test_*.py"))}
    assert set(ELSEWHERE) <= names, set(ELSEWHERE) - names
    for name, reason in ELSEWHERE.items():
        print("not run: %s: %s" % (name, reason))
    return sorted(names - set(ELSEWHERE))


def in_sandbox(*command):
    """Its exit code."""
    return subprocess.run([os.path.join(HERE, "sandbox.py"), *command], env={**os.environ, **SETTINGS}).returncode


if __name__ == "__main__":
    options = arguments(__doc__)
    if in_sandbox("true") == SKIPPED:
        sys.exit(SKIPPED)
    results = {}
    for script in chosen():
        print("==", script, flush=True)
        started = time.monotonic()
        code = in_sandbox(os.path.join(HERE, script + ".py"), "--build", os.path.abspath(options.build))
        results[script] = "ok" if code == 0 else "skipped" if code == SKIPPED else "FAILED (%d)" % code
        print("== %s: %s, %.0f s" % (script, results[script], time.monotonic() - started), flush=True)
    failed = [script for script, result in results.items() if result.startswith("FAILED")]
    print("%d scripts, skipped: %s, failed: %s" % (
        len(results), [script for script, result in results.items() if result == "skipped"] or "none", failed or "none"))
    sys.exit(1 if failed else 0)
