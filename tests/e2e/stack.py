"""A sink and a sidecar on free ports in a directory of their own, for end-to-end tests.

    with Stack(build, sink=["--ndjson", "{dir}/rows"]) as stack:
        producers = [stack.producer("--name", f"p{i}") for i in range(8)]

QWP_TEST_LOOP in the environment, "uring" or "epoll", names the sidecar's event loop, QWP_TEST_THREADING its threads.
QWP_TEST_USERS, "SIDECAR:PRODUCERS:GROUP", makes them processes of two users without capabilities that have a group in common,
as in two containers of a pod; the rings are then in /dev/shm. QWP_TEST_CONF is added to each connect string, without the keys that
it has.
`{dir}` in the sink's arguments and in `conf` is that directory. Everything that was started is ended, and the directory removed, also after a failure."""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from producer_process import ProducerProcess

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sink"))
from sink_process import Sink  # noqa: E402

WAIT_S = 60


def arguments(description):
    """The build directory that every test is given, and whether to be short."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", required=True)
    return parser.parse_args()


def wait_until(condition, what, seconds=WAIT_S):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("not within %d s: %s" % (seconds, what))
        time.sleep(0.02)


def cpu_ticks(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def context_switches(pid):
    """Of all threads of the process."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as file:
            for line in file:
                if "ctxt_switches" in line:
                    total += int(line.split()[1])
    return total


def users_wanted():
    text = os.environ.get("QWP_TEST_USERS")
    return [int(part) for part in text.split(":")] if text else None


def shared_volume(group):
    """As a pod's volume in memory with an fsGroup: anyone may use it, and what is made in it has that group."""
    path = tempfile.mkdtemp(prefix="qwp-e2e-", dir="/dev/shm")
    os.chown(path, 0, group)
    os.chmod(path, 0o2777)
    return path


def temporary_directory():
    """Where the sidecar's user may read, too."""
    directory = tempfile.TemporaryDirectory(prefix="qwp-e2e-")
    os.chmod(directory.name, 0o755)
    return directory


class Stack:
    def __init__(self, build, sink=(), sidecar=(), tls=True, conf="", conf_text=None, in_memory=False):
        self.build = os.path.abspath(build)
        self.bin = os.path.join(self.build, "bin")
        self.tests = os.path.join(self.build, "tests")
        self.directory = tempfile.mkdtemp(prefix="qwp-e2e-")
        self.rings = os.path.join(self.directory, "rings")
        if in_memory:  # where rings belong: it counts when they come and go often
            self.rings = tempfile.mkdtemp(prefix="qwp-e2e-", dir="/dev/shm")
        self.users = users_wanted()
        if self.users:
            self.rings = shared_volume(self.users[2])
            os.chmod(self.directory, 0o1777)  # for an sf_dir, say
        self.sidecar_arguments = list(sidecar)
        for option in ("loop", "threading"):  # the last one counts
            value = os.environ.get("QWP_TEST_" + option.upper())
            self.sidecar_arguments[:0] = ["--" + option, value] if value else []
        self.sink_arguments = [str(argument).format(dir=self.directory) for argument in sink]
        self.conf = conf.format(dir=self.directory)
        with open(os.path.join(self.directory, "token"), "w") as file:
            file.write("wrong\n")
        self.conf_text = conf_text  # a whole connect string: no sink then
        self.tls = tls
        self.sink = None
        self.sidecar = None
        self.started = []
        self.producer_processes = []
        self.log = open(os.path.join(self.directory, "sidecar.log"), "w+")
        try:
            if conf_text is None:
                self.start_sink()
            self.start_sidecar()
        except BaseException:
            self.__exit__()
            raise

    def start_sink(self, listen=None):
        tls = ["--tls-self-signed", os.path.join(self.directory, "tls")] if self.tls else []
        self.sink = Sink(os.path.join(self.bin, "qwp-sink"), self.directory, *tls,
                         *self.sink_arguments, *(["--listen", listen] if listen else []))
        return self.sink

    def connect_string(self):
        if self.conf_text is not None:
            return self.conf_text
        tls = "tls_roots=%s/tls/ca.pem;" % self.directory if self.tls else ""
        extra = "".join(pair + ";" for pair in os.environ.get("QWP_TEST_CONF", "").split(";")
                        if pair and pair.split("=")[0] + "=" not in self.conf)
        return "%s::addr=localhost:%d;%s%s%s" % ("wss" if self.tls else "ws", self.sink.port, tls,
                                                 self.conf, extra)

    def sidecar_command(self):
        metrics = [] if "--metrics" in self.sidecar_arguments else ["--metrics", "off"]
        return [os.path.join(self.bin, "qwp-sidecar"), "run", "--conf", self.connect_string(),
                "--rings", self.rings, *metrics, *self.sidecar_arguments]

    def start_sidecar(self):
        self.sidecar = self.start(self.sidecar_command(), stderr=self.log)
        wait_until(lambda: self.sidecar.poll() is not None or self.is_ready(), "sidecar starts")
        assert self.sidecar.poll() is None, self.log_text()
        if self.as_user(self.sidecar.args) and self.users[0] != 0:
            self.check_user()

    def check_user(self):
        with open("/proc/%d/status" % self.sidecar.pid) as file:
            status = dict(line.split(":", 1) for line in file)
        assert set(status["Uid"].split()) == {str(self.users[0])}, status["Uid"]
        assert int(status["CapEff"], 16) == 0, status["CapEff"]

    def is_ready(self):
        said = r'(msg=|"msg":)"ready".*\Wpid\W+%d\W' % self.sidecar.pid
        return re.search(said, self.log_text()) is not None

    def log_text(self):
        with open(self.log.name) as file:
            return file.read()

    def as_user(self, command):
        """Arguments of subprocess for a program of ours: whose it is to be, with a umask that must not matter."""
        name = os.path.basename(command[0])
        if not self.users or name not in ("qwp-sidecar", "sequence_producer", "hostile_producer"):
            return {}
        uid = self.users[0] if name == "qwp-sidecar" else self.users[1]
        return {"user": uid, "group": uid, "extra_groups": [self.users[2]], "umask": 0o077}

    def give_to_sidecar(self, path):
        """What is its own there, though the test made it."""
        if self.users:
            for folder, _, names in os.walk(path):
                for name in [folder, *(os.path.join(folder, name) for name in names)]:
                    os.chown(name, self.users[0], self.users[2])

    def become_producer(self):
        """What as_user() does, in a process that was forked."""
        if self.users:
            os.umask(0o077)
            os.setgroups([self.users[2]])
            os.setgid(self.users[1])
            os.setuid(self.users[1])

    def start(self, command, **options):
        process = subprocess.Popen(command, **self.as_user(command), **options)
        self.started.append(process)
        return process

    def producer(self, *arguments):
        return self.start([os.path.join(self.tests, "sequence_producer"), "--rings", self.rings,
                           *map(str, arguments)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def python_producer(self, name="test"):
        """A qwp_ctypes.Producer in a process of its own."""
        process = ProducerProcess(self.become_producer)
        self.producer_processes.append(process)
        library = os.path.join(self.build, "clients", "c", "libqwp.so")
        return process.producer(library, self.rings, name)

    def tool(self, *words, code=0, **options):
        """A command of qwp-sidecar that ends, by the sidecar's user."""
        command = [os.path.join(self.bin, "qwp-sidecar"), *words]
        out = subprocess.run(command, capture_output=True, text=True, **self.as_user(command), **options)
        assert out.returncode == code, (words, out.returncode, out.stdout, out.stderr)
        return out

    def status(self):
        return json.loads(self.tool("status", "--rings", self.rings, "--json").stdout)

    def stop_sidecar(self, number=signal.SIGTERM):
        self.sidecar.send_signal(number)
        return self.sidecar.wait(WAIT_S)

    def ring_files(self):
        return [name for name in os.listdir(os.path.join(self.rings, "default"))
                if name.endswith(".ring")]

    def __enter__(self):
        return self

    def __exit__(self, kind=None, *_):
        for process in self.producer_processes:
            process.close()
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if self.sink is not None:
            self.sink.__exit__()
        if kind is not None:
            print(self.log_text()[-4000:], file=sys.stderr)
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.rings, ignore_errors=True)


def finish(process, what):
    """Waits for a producer and gives what it printed."""
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, "%s ended with %s" % (what, process.returncode)
    return json.loads(out)
