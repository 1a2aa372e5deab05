#!/usr/bin/env python3
"""Runs a command as if in a strict container, made of namespaces: a user namespace, PIDs and a network of its own (loopback
only), the root read-only, 64 MB of /dev/shm, one writable tmpfs ($TMPDIR), and a seccomp filter that forbids io_uring, and
epoll_pwait2 as older profiles do. No new privileges.

    tests/e2e/sandbox.py COMMAND [ARGUMENT...]

The command is root of the user namespace, so that it can start others as the users it likes (stack.py does: the sidecar as
uid 1000, producers as uid 2000, one group in common, no capabilities). Exit code 77 where namespaces are not to be had, with
the reason."""
import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import struct
import sys

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS = 0x40000000, 0x8000000, 0x4000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
MS_NOEXEC = 0x8
SYS_MOUNT_SETATTR = 442  # the same on all architectures, as those below
MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD = 0x1, 0x8000, -100
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
FORBIDDEN = (425, 426, 427, 441)  # io_uring_setup, _enter, _register; epoll_pwait2
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
SHM_BYTES = 64 << 20
UIDS = 65536

libc = ctypes.CDLL(None, use_errno=True)


class NotHere(Exception):
    """Namespaces, or something in them, are not allowed on this machine."""


def check(result, what):
    if result < 0:
        code = ctypes.get_errno()
        if code in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOSPC, errno.EINVAL):
            raise NotHere("%s: %s" % (what, os.strerror(code)))
        raise OSError(code, what)


def mount(source, target, kind, flags, data=None):
    check(libc.mount(source, target.encode(), kind, flags, data), "mount of " + target)


def forbid(numbers):
    """A filter that answers EPERM, as container runtimes do."""
    code = [(0x20, 0, 0, 0)]  # the number of the call
    for i, number in enumerate(numbers):
        code.append((0x15, len(numbers) - i, 0, number))
    code += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
    body = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    program = Program(len(code), ctypes.addressof(body))
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)), "seccomp")


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        name = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("16xH", fcntl.ioctl(sock, SIOCGIFFLAGS, name))[0]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def writable_place(paths):
    """A directory to mount a tmpfs on, above none of `paths`."""
    for place in ("/tmp", "/mnt", "/var/tmp", "/media"):
        if os.path.isdir(place) and not any(path.startswith(place + "/") for path in paths):
            return place
    raise NotHere("no directory to mount a tmpfs on")


def build_mounts():
    mount(b"none", "/", None, MS_REC | MS_PRIVATE)
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    check(libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes)),
          "read-only root")
    here = [os.path.realpath(path) for path in sys.argv[1:] + [__file__, os.getcwd()] if "/" in path]
    place = writable_place(here)
    mount(b"tmpfs", place, b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=1777,size=512m")
    mount(b"tmpfs", "/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
          b"mode=1777,size=%d" % SHM_BYTES)
    mount(b"proc", "/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    os.environ["TMPDIR"] = place


def inside(command):
    """The first process of the PID namespace."""
    build_mounts()
    loopback_up()
    forbid(FORBIDDEN)
    try:
        open("/qwp-sandbox-is-writable", "w").close()
    except OSError as error:
        assert error.errno == errno.EROFS, error
    else:
        raise AssertionError("the root is writable")
    assert libc.syscall(425, 8, None) == -1 and ctypes.get_errno() == errno.EPERM, "io_uring is there"
    worker = os.fork()
    if worker == 0:
        os.execvp(command[0], command)
    code = 1
    while True:  # as init: reaps whatever is left behind
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def guarded(function, *arguments):
    try:
        code = function(*arguments)
    except NotHere as reason:
        print("skipped:", reason, file=sys.stderr)
        code = 77
    sys.stdout.flush()
    os._exit(code)


def outside_of_pids(command, ready, go):
    check(libc.unshare(CLONE_NEWUSER), "user namespace")
    os.write(ready, b"x")
    if os.read(go, 1) != b"x":
        return 77
    os.setgroups([])
    os.setgid(0)
    os.setuid(0)
    check(libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS),
          "namespaces")
    first = os.fork()
    if first == 0:
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        guarded(inside, command)
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xff


def run(command):
    if platform.machine() not in ("x86_64", "aarch64"):
        raise NotHere("the filter knows the numbers of x86-64 and arm64")
    ready_read, ready = os.pipe()
    go, go_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready_read)
        os.close(go_write)
        guarded(outside_of_pids, command, ready, go)
    os.close(ready)
    os.close(go)
    if os.read(ready_read, 1) == b"x":
        try:
            for name in ("uid_map", "gid_map"):
                with open("/proc/%d/%s" % (child, name), "w") as file:
                    file.write("0 0 %d\n" % UIDS)
            os.write(go_write, b"x")
        except PermissionError as error:
            print("skipped: two users in a namespace need root: %s" % error, file=sys.stderr)
    os.close(go_write)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: sandbox.py COMMAND [ARGUMENT...]")
    sys.stdout.flush()
    guarded(run, sys.argv[1:])
