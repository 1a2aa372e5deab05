"""Starts and stops qwp-sink for tests."""
import json
import os
import signal
import subprocess
import time


class Sink:
    """A running sink on a free port; use with `with`. `directory` gets its files."""

    def __init__(self, program, directory, *arguments):
        self.directory = str(directory)
        os.makedirs(self.directory, exist_ok=True)
        port_file = os.path.join(self.directory, "port")
        if os.path.exists(port_file):
            os.unlink(port_file)
        self.process = subprocess.Popen(
            [program, "--listen", "127.0.0.1:0", "--port-file", port_file, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(os.path.join(self.directory, "log"), "w"),
            text=True,
        )
        deadline = time.monotonic() + 60
        while not os.path.exists(port_file):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError("qwp-sink did not start: %s" % self.process.wait())
            time.sleep(0.01)
        with open(port_file) as file:
            self.port = int(file.read())

    def path(self, name):
        return os.path.join(self.directory, name)

    def summary(self):
        return self.ask("summary")

    def fault(self, spec):
        """Adds a fault (qwp-sink --help)."""
        after = self.ask("fault " + spec)
        added = after["faults"][-1:] and after["faults"][-1]["fault"] == spec
        assert added, "not a fault: %s, see %s" % (spec, self.path("log"))
        return after

    def faults(self):
        return self.ask("faults")

    def clear_faults(self):
        return self.ask("faults clear")

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            raise RuntimeError("qwp-sink ended: %s, see %s" % (self.process.wait(10), self.path("log")))

    def stop(self):
        """SIGTERM; the last summary. Fails when the sink does not end cleanly."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.process.returncode
        return json.loads(out.splitlines()[-1])

    def rows(self, name="rows"):
        with open(self.path(name)) as file:
            return [json.loads(line) for line in file]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
