#!/usr/bin/env python3
"""Sidecar and producers of different users that share a group, in either order of starting: modes, owners and limits. Needs to
be root, to become others; test_namespaces runs it as root of a namespace, too."""
import errno
import os
import re
import stat
import subprocess
import sys

import stack as harness
from stack import Stack, arguments, finish, wait_until

SIDECAR, PRODUCER, GROUP, STRANGER = 1000, 2000, 3000, 4000
SMALL = 256 << 20


def instance(stack):
    return os.path.join(stack.rings, "default")


def modes(stack):
    """Mode, owner and group of what lies in the instance directory, and of itself."""
    found = {}
    for name in [".", *os.listdir(instance(stack))]:
        st = os.lstat(os.path.join(instance(stack), name))
        key = re.sub(r"^.*\.ring$", "ring", name)
        found[key] = (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid)
    return found


def run_producer(stack, *args, **who):
    """Exit code and what it said."""
    command = [os.path.join(stack.tests, "sequence_producer"), "--rings", stack.rings, *args]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60,
                         **{**stack.as_user(command), **who})
    return out.returncode, out.stderr


def sidecar_first(build):
    with Stack(build, sidecar=["--doorbell", "fifo"]) as stack:
        producer = stack.producer("--name", "p0", "--rows", 100, "--hold")
        producer.stdout.readline()
        found = modes(stack)
        assert found["."] == (0o3770, SIDECAR, GROUP), found
        assert found["ring"] == (0o660, PRODUCER, GROUP), found
        assert found["bell"] == (0o620, SIDECAR, GROUP), found
        assert found[".sidecar"][:2] == (0o2700, SIDECAR) or found[".sidecar"][:2] == (0o700, SIDECAR), found
        assert all(mode & 0o002 == 0 for mode, _, _ in found.values()), found
        producer.kill()
        wait_until(lambda: stack.ring_files() == [], "the ring is removed")

        # Whoever is not of the group is told what he meets and who he is.
        code, said = run_producer(stack, "--rows", "1", user=STRANGER, group=STRANGER, extra_groups=[])
        assert code != 0
        for part in (instance(stack), "mode 03770", "owner %d:%d" % (SIDECAR, GROUP),
                     "we are %d:%d" % (STRANGER, STRANGER)):
            assert part.replace(instance(stack), "default") in said, (part, said)


def producer_first(build):
    """The directory is the producer's then, so the sidecar may not remove his rings: it empties them."""
    with Stack(build) as stack:
        stack.stop_sidecar()
        subprocess.run(["rm", "-rf", instance(stack)], check=True)
        producer = stack.producer("--name", "early", "--rows", 100)
        wait_until(lambda: os.path.isdir(instance(stack)) and stack.ring_files(), "it makes the directory")
        assert modes(stack)["."] == (0o3770, PRODUCER, GROUP), modes(stack)
        stack.start_sidecar()
        finish(producer, "the early producer")

        def emptied():
            return [os.stat(os.path.join(instance(stack), name)).st_size for name in stack.ring_files()] == [0]
        wait_until(emptied, "the ring is emptied")
        wait_until(lambda: "it is emptied" in stack.log_text(), "and that is told")
        second = stack.producer("--name", "second", "--rows", 100, "--hold")
        second.stdout.readline()
        assert [name.startswith("second") for name in stack.ring_files()] == [True], stack.ring_files()
        before = stack.log_text().count("ring refused")
        stack.stop_sidecar()
        stack.start_sidecar()  # an emptied one is nothing to speak of
        assert stack.log_text().count("ring refused") == before


def allowed_users(build):
    with Stack(build, sidecar=["--allow-users", "%d,0" % SIDECAR]) as stack:
        refused = stack.producer("--name", "p0", "--forever", "--pause-us", "1000", "--states")
        wait_until(lambda: "uid %d, whom this sidecar does not serve" % PRODUCER in stack.log_text(), "refusal")
        refused.wait(60)  # told so by its ring
        assert refused.returncode != 0


def root_and_strangers_directory(build):
    """A sidecar that is root is not taken in by a directory that anyone made, unless told whose it may be."""
    with Stack(build) as stack:
        stack.stop_sidecar()
        stack.users = [0, PRODUCER, GROUP]
        subprocess.run(["rm", "-rf", instance(stack)], check=True)
        producer = stack.producer("--name", "early", "--rows", 100)
        wait_until(lambda: os.path.isdir(instance(stack)), "it makes the directory")
        command = stack.sidecar_command()
        out = subprocess.run(command, capture_output=True, text=True, timeout=60)
        for part in ("its owner is a stranger", "owner %d:%d" % (PRODUCER, GROUP), "we are 0:0", "--allow-users"):
            assert out.returncode == 1 and part in out.stderr, out.stderr
        for trusting in (["--group", str(GROUP)], ["--allow-users", str(PRODUCER)]):
            stack.sidecar_arguments = trusting
            stack.start_sidecar()
            stack.stop_sidecar()
        finish(producer, "the early producer")


def limits(build):
    """Bounds that cost the ring that passes them; and a place among producers that comes free."""
    with Stack(build, sidecar=["--producers-max", "1", "--producer-tables-max", "2",
                               "--producer-symbols-max", "50"]) as stack:
        held = stack.producer("--name", "first", "--rows", 10, "--hold")
        held.stdout.readline()
        waits = stack.producer("--name", "waits", "--rows", 10)
        wait_until(lambda: "too many producers" in stack.log_text(), "no place for it")
        held.kill()
        finish(waits, "the one that waited")
        for args, text in ((("--tables", "3"), "more than 2 tables"), (("--symbols", "1000"), "more than 50 symbols")):
            code, said = run_producer(stack, "--rows", "1000", *args)
            assert code != 0 and text in said, (code, said)


def shm_bytes(left=False):
    fs = os.statvfs("/dev/shm")
    return (fs.f_bavail if left else fs.f_blocks) * fs.f_frsize


def no_room(build):
    """A ring that the file system has no blocks for fails when it is made."""
    if shm_bytes() > SMALL:
        print("no_room: /dev/shm is large here")
        return
    with Stack(build) as stack:
        code, said = run_producer(stack, "--rows", "1", env={**os.environ, "QWP_TEST_RING_BYTES": str(1 << 29)})
        assert code == 1 and re.search(r"[0-9]+ more bytes needed, [0-9]+ available", said), said
        assert stack.ring_files() == []


def fill(path, step, leave=0):
    """A step at a time, as others take room meanwhile."""
    with open(path, "ab") as file:
        try:
            while shm_bytes(left=True) > leave:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
        except OSError as error:
            assert error.errno == errno.ENOSPC, error


def full_shm(build):
    """Rings and a store in memory fill it, during an outage: rows wait, new rings are refused, nobody gets a signal; and when
    the server is back, all of them arrive."""
    if shm_bytes() > SMALL:
        print("full_shm: /dev/shm is large here")
        return
    with Stack(build, sink=["--verify", "seq,producer"],
               conf="sf_max_segment_bytes=1m;sf_max_total_bytes=1g;reconnect_max_backoff_millis=100;") as stack:
        assert "may outgrow the file system" in stack.log_text(), stack.log_text()
        port = stack.sink.port
        stack.sink.stop()
        producers = [stack.producer("--name", "p%d" % i, "--forever", "--unit", 20) for i in range(2)]
        wait_until(lambda: len(stack.status()["producers"]) == 2, "they are attached")
        filler = os.path.join(stack.rings, "filler")
        fill(filler, 1 << 20, leave=4 << 20)
        wait_until(lambda: stack.status()["store_state"] == "cannot be written", "it is full")
        fill(filler, 4096)  # a ring is smaller than a segment
        assert "No space left" in stack.status()["store_error"], stack.status()
        code, said = run_producer(stack, "--rows", "1")
        assert code == 1 and re.search(r"[0-9]+ more bytes needed, [0-9]+ available", said), said
        os.unlink(filler)
        stack.start_sink("127.0.0.1:%d" % port)
        published = 0
        for process in producers:
            process.terminate()
        for process in producers:
            figures = finish(process, "a producer")
            assert figures["acked"] == figures["published"] > 0, figures
            published += figures["published"]
        assert stack.stop_sidecar() == 0
        summary = stack.sink.stop()
        assert summary["rows"] - summary["doubled"] == published and summary["lost"] == 0, (summary, published)


if __name__ == "__main__":
    options = arguments(__doc__)
    if os.geteuid() != 0:
        print("skipped: not root, so nobody else can be become")
        sys.exit(77)
    os.environ["QWP_TEST_USERS"] = "%d:%d:%d" % (SIDECAR, PRODUCER, GROUP)
    assert harness.users_wanted()
    for test in (sidecar_first, producer_first, allowed_users, root_and_strangers_directory, limits, no_room, full_shm):
        test(options.build)
        print(test.__name__, "ok")
