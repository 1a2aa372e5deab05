"""What the end-to-end benchmarks share: processes to measure, results, tables.

A program measures cases in parts. Each repeat runs every case of a part once, ours and its baselines
in turn, so that whatever else the machine does meets all of them; shown are medians, the span, and
ratios to the baseline (`base`) of the same run. A case that fails is named and the others go on.
Where somebody else shares the cores now and then (bench_core), a run waits until they are at full
speed, and short ones that were not at their end are made again; of those that still were not only
the number counts, unless there are no others.
`--json FILE` keeps all runs, for perf/report."""
import argparse
import contextlib
import dataclasses
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

WAIT_S = 300
START_S = 30  # for a program to be there
SKIPPED = 77  # exit code of a program that does not run on this machine
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# ---- processes ----

def cpu_s(pid):
    """CPU seconds of a process, threads that ended included."""
    return time.clock_gettime(~pid << 3 | 2)  # its CPU clock, as clock_getcpuclockid(3) makes it


def switches(pid):
    """Context switches of all threads, of their own will or not."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as file:
            total += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    return total


def wait_until(condition, what, seconds=WAIT_S):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("not within %d s: %s" % (seconds, what))
        time.sleep(0.01)


class Cores:
    """Whether the cores run at full speed. What a run found tells nothing about that by itself, so
    that runs are chosen by this alone."""
    SLOW = 1.4       # times the fastest that was ever seen; a shared core takes 2
    WAIT_S = 4       # for full speed before a run
    AGAIN_S = 3      # a run is made again until its tries took this together
    TRIES = 5
    ALL_S = 120      # what a program may spend on it
    SETTLE_S = 0.02  # the measured processes may still have something to put away

    def __init__(self):
        self.program = None  # off: nothing waits, nothing is made again
        self.fastest_ns = None
        self.were_slow = False  # at the end of the last run
        self.took_s = 0.0       # its tries together
        self.left_s = self.ALL_S

    def watch(self, bin_dir):
        self.program = os.path.join(bin_dir, "bench_core")
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            self.are_slow()
            time.sleep(0.05)

    def are_slow(self):
        out = subprocess.run([self.program], capture_output=True, text=True, check=True)
        found = json.loads(out.stdout)
        self.fastest_ns = min(found["fastest_ns"], self.fastest_ns or found["fastest_ns"])
        return found["slowest_ns"] > self.SLOW * self.fastest_ns

    @contextlib.contextmanager
    def at_full_speed(self):
        """Around what is timed."""
        began = time.monotonic()
        if self.program is not None:
            deadline = began + min(self.WAIT_S, self.left_s)
            while self.are_slow() and time.monotonic() < deadline:
                time.sleep(0.02)
        waited = time.monotonic()
        self.left_s -= waited - began
        yield
        self.took_s += time.monotonic() - waited
        if self.program is not None:
            time.sleep(self.SETTLE_S)
            self.were_slow = self.are_slow()

    def run(self, run):
        """What the run returns, made again while the cores were slow at its end."""
        self.took_s = 0.0
        for _ in range(self.TRIES):
            began = time.monotonic()
            self.were_slow = False
            out = run()
            if not self.were_slow or self.took_s > self.AGAIN_S or self.left_s <= 0:
                break
            self.left_s -= time.monotonic() - began
        return out


cores = Cores()


def go(process):
    """Lets a program that said "ready" begin."""
    process.stdin.write("\n")
    process.stdin.flush()


class Stack:
    """A sink and a sidecar; ends both and removes their directory, whatever happens. `conf` is added
    to the connect string; {dir} in it is the stack's own directory. `server`: the connect string of
    a server that is there already, instead of the sink."""

    def __init__(self, bin_dir, tls=False, sidecar=(), sink=(), with_sidecar=True, conf="",
                 server=None):
        self.bin_dir = bin_dir
        self.tls = tls
        self.extra_conf = conf
        self.directory = tempfile.mkdtemp(prefix="qwp-bench-", dir="/dev/shm")
        self.rings = os.path.join(self.directory, "rings")
        self.log = open(os.path.join(self.directory, "log"), "w+")
        self.processes = []
        try:
            if server is None:
                self.start_sink(sink)
            else:
                self.conf = server.rstrip(";") + ";" + self.own(conf)
            if with_sidecar:
                self.start_sidecar(sidecar)
        except BaseException:
            self.close()
            raise

    def start(self, *words, **options):
        words = [os.path.join(self.bin_dir, words[0]), *map(str, words[1:])]
        process = subprocess.Popen(words, stderr=self.log, text=True, **options)
        self.processes.append(process)
        return process

    def start_sink(self, words):
        port_file = os.path.join(self.directory, "port")
        tls = ["--tls-self-signed", self.directory] if self.tls else []
        self.sink = self.start("qwp-sink", "--listen", "127.0.0.1:0", "--port-file", port_file, *tls,
                               *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.wait_for(self.sink, lambda: os.path.exists(port_file) and os.path.getsize(port_file) > 0,
                      "the sink listens")
        with open(port_file) as file:
            port = int(file.read())
        roots = "tls_roots=%s/ca.pem;" % self.directory if self.tls else ""
        self.conf = "%s::addr=127.0.0.1:%d;%s%s" % (
            "wss" if self.tls else "ws", port, roots, self.own(self.extra_conf))

    def own(self, conf):
        return conf.format(dir=self.directory)

    def start_sidecar(self, words, up=True):
        self.sidecar = self.start("qwp-sidecar", "run", "--conf", self.conf, "--rings", self.rings,
                                  "--metrics", "off", "--log-level", "warn", *words)
        if up:
            self.wait_up()

    def wait_up(self):
        self.wait_for(self.sidecar, lambda: self.status().get("connection") == "up",
                      "the sidecar is connected")

    def wait_for(self, process, condition, what):
        """Not longer than the process lives."""
        wait_until(lambda: condition() or process.poll() is not None, what, START_S)
        if process.poll() is not None:
            raise RuntimeError("%s ended: %s" % (process.args[0], self.log_text()))

    def status(self):
        out = subprocess.run([os.path.join(self.bin_dir, "qwp-sidecar"), "status", "--rings",
                              self.rings, "--json"], capture_output=True, text=True)
        return json.loads(out.stdout) if out.stdout else {}

    def producer(self, *words):
        return self.producers([words])[0]

    def producers(self, each):
        """Producers, by their arguments, that the sidecar has attached and that wait for go()."""
        processes = [self.producer_begin(*words) for words in each]
        for process in processes:
            self.producer_ready(process)
        living = sum(process.args[0].endswith("load_producer") and process.poll() is None
                     for process in self.processes)
        self.wait_for(self.sidecar, lambda: self.status().get("ring_count") == living,
                      "%d rings are attached" % living)
        wait_until(self.is_calm, "the sidecar has mapped the rings", START_S)
        return processes

    def is_calm(self):
        """Parked sidecars are; of one that spins nobody can tell."""
        if "spin" in self.sidecar.args:
            return True
        before = cpu_s(self.sidecar.pid)
        time.sleep(0.03)
        return cpu_s(self.sidecar.pid) - before < 0.001

    def producer_begin(self, *words):
        return self.start("load_producer", "--rings", self.rings, *words, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE)

    def producer_ready(self, process):
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("a producer did not start: " + self.log_text())

    def run(self, producers):
        """To the last acknowledgement: rows, seconds, and CPU seconds of producers, sidecar and sink."""
        with cores.at_full_speed():
            before = [cpu_s(process.pid) for process in (self.sidecar, self.sink)]
            for process in producers:
                go(process)
            done = [self.finish(process) for process in producers]
            after = [cpu_s(process.pid) for process in (self.sidecar, self.sink)]
        seconds = (max(each["acked_ns"] for each in done) - min(each["start_ns"] for each in done)) / 1e9
        return (sum(each["rows"] for each in done), seconds, sum(each["cpu_s"] for each in done),
                after[0] - before[0], after[1] - before[1])

    def finish(self, process):
        """What a producer says at its end."""
        line = process.stdout.readline()
        if process.wait(WAIT_S) != 0 or not line:
            raise RuntimeError("a producer failed: " + self.log_text())
        return json.loads(line)

    def sink_line(self, line):
        self.sink.stdin.write(line + "\n")
        self.sink.stdin.flush()
        return json.loads(self.sink.stdout.readline())

    def summary(self):
        return self.sink_line("summary")

    def check_rows(self, rows):
        """The sink's summary, which must hold so many rows and no error."""
        summary = self.summary()
        if summary["rows"] != rows or summary["errors"] != 0:
            raise RuntimeError("sent %d rows: %s %s" % (rows, summary, self.log_text()))
        return summary

    def log_text(self):
        with open(self.log.name) as file:
            return file.read()[-2000:]

    def stop(self, process, seconds=20):
        """SIGTERM, then SIGKILL; the exit code."""
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return process.returncode

    def close(self):
        for process in reversed(self.processes):
            self.stop(process)
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run_program(bin_dir, *words):
    """Runs a program that prints one JSON object."""
    with cores.at_full_speed():
        out = subprocess.run([os.path.join(bin_dir, words[0]), *map(str, words[1:])],
                             capture_output=True, text=True, timeout=WAIT_S)
    if out.returncode != 0:
        raise RuntimeError("%s: %s" % (words[0], out.stderr[-500:]))
    return json.loads(out.stdout)


# ---- the machine ----

def first_line(*words):
    try:
        out = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    except FileNotFoundError:
        return ""
    return out.stdout.splitlines()[0] if out.returncode == 0 and out.stdout else ""


def cpu_model():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def compiler(build):
    """The compiler and build type, as CMake noted them."""
    with contextlib.suppress(OSError), open(os.path.join(build, "CMakeCache.txt")) as file:
        cache = dict(line.strip().split("=", 1) for line in file if "=" in line and line[0] != "#")
        program = next((value for key, value in cache.items()
                        if key.startswith("CMAKE_C_COMPILER:")), "cc")
        kind = cache.get("CMAKE_BUILD_TYPE:STRING", "")
        return "%s %s" % (first_line(program, "--version"), kind)
    return "unknown"


def host(build):
    # The report's own results are no change of what is measured.
    changed = first_line("git", "status", "--porcelain", "--untracked-files=no", "--", ".",
                         ":!perf/report")
    return {"cpu": cpu_model(), "cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
            "kernel": "%s %s %s" % (platform.system(), platform.release(), platform.machine()),
            "compiler": compiler(build),
            "commit": first_line("git", "describe", "--always", "--abbrev=12") +
            (" with changes" if changed else ""),
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}


# ---- cases and results ----

@dataclasses.dataclass
class Case:
    name: str
    run: object           # a function without arguments that returns a dict of figures
    base: str = None      # the case of the same part that ratios are taken to
    dims: dict = dataclasses.field(default_factory=dict)  # what a plot puts on its axes


@dataclasses.dataclass
class Column:
    head: str
    figure: str           # of the dict that a run returned
    scale: float = 1.0
    form: str = "%.1f"
    ratio: bool = False   # followed by the ratio to the base


class Results:
    """All runs of one program."""

    def __init__(self, program, options):
        # An end from outside ends what was started, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        self.options = options
        self.bin_dir = os.path.join(os.path.abspath(options.build), "bin")
        self.data = {"program": program, "host": host(options.build),
                     "command": "perf/" + " ".join([os.path.basename(sys.argv[0])] +
                                                   shown_arguments(sys.argv[1:])),
                     "parts": {}}
        if not options.smoke:
            cores.watch(self.bin_dir)
        machine = self.data["host"]
        print("%s, %d cpus, %s, load %.1f; %s; commit %s" % (
            machine["cpu"], machine["cpus"], machine["kernel"], machine["load"],
            machine["compiler"], machine["commit"]), flush=True)

    def measure(self, part, title, cases, repeats, columns):
        """Runs the cases in turn, prints the table; returns the runs by case."""
        entry = self.data["parts"].setdefault(part, {"title": title, "repeats": repeats,
                                                     "cases": {}, "failed": {}})
        for case in cases:
            entry["cases"][case.name] = {"base": case.base, "dims": case.dims, "runs": []}
        for _ in range(repeats):
            for case in cases:
                if case.name not in entry["failed"]:
                    self.run_one(entry, case)
        show(entry, columns)
        self.save()
        return entry["cases"]

    def run_one(self, entry, case):
        try:
            run = cores.run(case.run)
            entry["cases"][case.name]["runs"].append({**run, "slow": cores.were_slow})
        except Exception as error:  # a failing case must not cost the others
            if not isinstance(error, (RuntimeError, subprocess.SubprocessError)):
                traceback.print_exc()
            # Results are committed: no folders of this machine.
            text = str(error).replace(ROOT, ".").replace(os.path.expanduser("~"), "~")
            entry["failed"][case.name] = text[-1000:]

    def save(self):
        if self.options.json:
            with open(self.options.json, "w") as file:
                json.dump(self.data, file, indent=1)

    def exit_code(self):
        self.save()
        return 1 if any(part["failed"] for part in self.data["parts"].values()) else 0


def shown_arguments(arguments):
    """Without where results went: that is of this machine alone."""
    out = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word in ("--json", "--build", "--work", "--python", "--go", "--disk"):
            skip = True
        else:
            out.append(word)
    return out


def that_count(runs):
    """Those that ended at full speed, if there are any."""
    return [run for run in runs if not run.get("slow")] or runs


def median(runs, figure):
    values = [run[figure] for run in that_count(runs) if run.get(figure) is not None]
    return statistics.median(values) if values else None


def cell(column, runs, base_runs):
    value = median(runs, column.figure)
    text = "" if value is None else column.form % (value * column.scale)
    if not column.ratio:
        return text
    base = median(base_runs, column.figure) if base_runs else None
    if value is None or not base:
        return text + "         "
    return "%s (x%5.2f)" % (text, value / base)


def span(column, runs):
    values = sorted(run[column.figure] * column.scale for run in that_count(runs))
    return "%s-%s" % (column.form % values[0], column.form % values[-1])


def show(entry, columns):
    """The table of a part: medians, the span of the first column, ratios to each case's base."""
    runs = [run for case in entry["cases"].values() for run in case["runs"]]
    print("\n%s; medians of %d; cores slow at the end of %d of %d runs" % (
        entry["title"], entry["repeats"], sum(run["slow"] for run in runs), len(runs)))
    heads = ["case", columns[0].head, "span", *[column.head for column in columns[1:]]]
    lines = []
    for name, case in entry["cases"].items():
        if not case["runs"]:
            continue
        base = entry["cases"].get(case["base"], {}).get("runs")
        cells = [cell(column, case["runs"], base) for column in columns]
        lines.append([name, cells[0], span(columns[0], case["runs"]), *cells[1:]])
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    for line in [heads, *lines]:
        print("  ".join([line[0].ljust(widths[0])] +
                        [text.rjust(width) for text, width in zip(line[1:], widths[1:])]))
    for name, why in entry["failed"].items():
        print("FAILED %s: %s" % (name, why))
    sys.stdout.flush()


def parser(doc, repeats, parts=()):
    out = argparse.ArgumentParser(description=doc,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--build", default=os.path.join(ROOT, "build"))
    out.add_argument("--repeats", type=int, default=repeats)
    out.add_argument("--smoke", action="store_true", help="so short that figures mean nothing")
    out.add_argument("--quick", action="store_true", help="fewer cases, for a first look")
    out.add_argument("--json", help="write all runs there")
    if parts:
        out.add_argument("--only", choices=parts, action="append")
    return out


def parse(out):
    options = out.parse_args()
    if options.smoke:
        options.quick, options.repeats = True, 1
    return options


def file_system(path):
    """The kind of file system of a directory, as the kernel names it."""
    best = ("", "unknown")
    with open("/proc/mounts") as file:
        for line in file:
            _, mount, kind = line.split()[:3]
            inside = os.path.realpath(path)
            if (inside + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(best[0]):
                best = (mount, kind)
    return best[1]
