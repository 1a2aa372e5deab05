"""What the deployment files lead to on a host: the packages go onto a system and off it again, and what the sidecar asks of the
kernel is what the unit allows. For test_deploy.py."""
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sink"))
from sink_process import Sink  # noqa: E402

WAIT_S = 60
# A copy of this system that is gone with the namespace; all that differs from it lies in $1/upper. Prints what is left of ours.
SYSTEM = """
mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/changes" "$1/system" &&
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/changes" "$1/system" &&
mount --bind /proc "$1/system/proc" && mount --bind /dev "$1/system/dev" || exit 77
mkdir "$1/system/packages" && cp "$2"/*.deb "$1/system/packages" && chroot "$1/system" sh -eu -c "$3" || exit 1
rm -r "$1/system/packages"
cd "$1/upper" && echo "left: $(find . -name '*qwp*' | tr '\\n' ' ')"
"""
INSTALL = """
library=$(dpkg-deb -f /packages/libqwp[0-9]*.deb Package)
dpkg -i /packages/*.deb
id qwp
test "$(stat -c %a:%U:%G /etc/qwp-sidecar/qwp.conf)" = 640:root:qwp
setpriv --reuid qwp --regid qwp --clear-groups cat /etc/qwp-sidecar/qwp.conf >/dev/null
qwp-sidecar version
qwp-feed --help >/dev/null
printf '#include <qwp.h>\\nint main(void) { qwp_producer_close(0); }\\n' >/app.c
cc /app.c -o /app $(pkg-config --cflags --libs qwp)
/app
cc /app.c -o /app-static /usr/lib/libqwp.a -pthread
/app-static
echo '# mine' >>/etc/qwp-sidecar/qwp.conf
dpkg -i /packages/*.deb
tail -n 1 /etc/qwp-sidecar/qwp.conf | grep -q mine
dpkg -r libqwp-dev qwp-sidecar $library
test -f /etc/qwp-sidecar/qwp.conf
test ! -e /usr/bin/qwp-sidecar
dpkg -P qwp-sidecar $library
"""


def install_and_remove(packages, directory):
    """`packages`: the folder with them. Installed, run, installed again over it, removed, purged."""
    out = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", SYSTEM, "sh", directory, packages,
                          INSTALL], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})
    if out.returncode == 77 or "unshare failed" in out.stderr:
        print("left out: installing the packages (%s)" % out.stderr.strip())
        return
    assert out.returncode == 0 and out.stdout.endswith("\nleft: \n"), out.stdout + out.stderr
    print("packages: installed, run, upgraded, removed and purged without a trace")


def filter_sets():
    """What systemd's names of groups stand for: {"@name": names}."""
    sets, name = {}, None
    for line in subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], check=True, capture_output=True,
                               text=True).stdout.splitlines():
        line = re.sub(r"\x1b\[[0-9;]*m", "", line)
        if line.startswith("@"):
            name = line.strip()
            sets[name] = set()
        elif line.startswith("    ") and name and not line.strip().startswith("#"):
            sets[name].add(line.strip())
    return sets


def allowed_calls(unit):
    """As systemd.exec(5) has it: the first list says what is allowed, each later one adds or, with ~, takes away."""
    sets = filter_sets()

    def spread(name):
        return set().union(*map(spread, sets[name])) if name in sets else {name}

    allowed = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.M):
        named = set().union(*map(spread, line.lstrip("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed | spread("@default")


def wait_ready(process, log_name):
    """PID and log of a traced sidecar that is ready; None when it has ended, or may not be traced."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and process.poll() is None:
        with open(log_name) as file:
            said = file.read()
        pid = re.search(r'msg="ready".* pid=(\d+)', said)
        if pid:
            return int(pid[1]), said
        time.sleep(0.02)
    assert process.poll() is not None, "it is not ready"
    return None


def calls_of(build, directory, *options):
    """What a sidecar with a store on disk, TLS, metrics, rows, a reload and an end calls; nothing where it cannot run."""
    bin_ = os.path.join(build, "bin")
    trace = os.path.join(directory, "trace")
    log_name = os.path.join(directory, "log")
    with Sink(os.path.join(bin_, "qwp-sink"), os.path.join(directory, "sink"), "--tls-self-signed",
              os.path.join(directory, "tls")) as sink, open(log_name, "w") as log:
        conf = "wss::addr=localhost:%d;tls_roots=%s/tls/ca.pem;sf_dir=%s/store;sf_durability=periodic;" \
            "sf_sync_interval_millis=20;sf_max_segment_bytes=64k;" % (sink.port, directory, directory)
        rings = os.path.join(directory, "rings")
        process = subprocess.Popen(["strace", "-f", "-qq", "-s", "0", "-o", trace, os.path.join(bin_, "qwp-sidecar"),
                                    "run", "--conf", conf, "--rings", rings, "--metrics", "127.0.0.1:0",
                                    *options], stderr=log)
        try:
            ready = wait_ready(process, log_name)
            if ready is None:
                return set()
            lines = "".join("t,s=s%d v=%di,w=\"%s\"\n" % (i % 500, i, "x" * 100) for i in range(10000))
            subprocess.run([os.path.join(bin_, "qwp-feed"), "--format", "ilp", "--no-progress", "--rings", rings, "-"],
                           input=lines, check=True, capture_output=True, text=True, timeout=WAIT_S)
            pid, said = ready
            port = re.search(r'over HTTP" address=\S+ port=(\d+)', said)[1]
            urllib.request.urlopen("http://127.0.0.1:%s/metrics" % port, timeout=WAIT_S).close()
            os.kill(pid, signal.SIGHUP)
            time.sleep(0.2)  # (what it does then is a matter of the next milliseconds)
            os.kill(pid, signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
            process.wait()
    with open(trace) as file:
        # What comes before the program runs is the service manager's.
        return set(re.findall(r"^\d+ +(\w+)\(", file.read(), re.M))


def unit_allows_what_is_called(build, unit, directory):
    allowed, called = allowed_calls(unit), set()
    for loop in ("uring", "epoll"):
        for threading in ("shared", "dedicated"):
            place = os.path.join(directory, loop + "-" + threading)
            os.makedirs(place)
            called |= calls_of(build, place, "--loop", loop, "--threading", threading)
    if not called:
        print("left out: what the unit's filter allows (a process may not be traced here)")
        return
    # strace itself starts the program.
    assert {"fallocate", "fdatasync", "accept4", "futex", "membarrier"} <= called, sorted(called)
    assert called <= allowed | {"execve"}, "the unit forbids %s" % sorted(called - allowed)
    print("the unit's filter allows all of %d system calls that were made" % len(called))
