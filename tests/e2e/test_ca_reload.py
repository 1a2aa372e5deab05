#!/usr/bin/env python3
"""tls_roots is read again when the file changes, and on SIGHUP; as PEM, and as PKCS#12 with its password.

Waits between attempts are so long that only a look at the changed file can end them."""
import os
import shutil
import signal
import subprocess

from stack import Sink, Stack, arguments, finish, wait_until

SLOW = "reconnect_initial_backoff_millis=600000;reconnect_max_backoff_millis=600000;"


class CaStack(Stack):
    """`roots` is what the sidecar trusts; trust() puts the right CA there, or another one."""

    def __init__(self, build, password=None):
        self.password = password
        super().__init__(build, conf=SLOW)

    def start_sink(self, listen=None):
        other = os.path.join(self.directory, "other")
        with Sink(os.path.join(self.bin, "qwp-sink"), other, "--tls-self-signed", other + "/tls") as sink:
            sink.stop()
        self.authorities = {False: other + "/tls/ca.pem", True: self.directory + "/tls/ca.pem"}
        self.roots = os.path.join(self.directory, "roots")
        super().start_sink(listen)
        self.trust(False)
        return self.sink

    def trust(self, right):
        fresh = self.roots + ".new"
        if self.password is None:
            shutil.copy(self.authorities[right], fresh)
        else:
            subprocess.run(["openssl", "pkcs12", "-export", "-nokeys", "-in", self.authorities[right],
                            "-passout", "pass:" + self.password, "-out", fresh], check=True)
        os.chmod(fresh, 0o644)
        os.rename(fresh, self.roots)

    def connect_string(self):
        text = super().connect_string().replace("/tls/ca.pem", "/roots")
        return text + ("tls_roots_password=%s;" % self.password if self.password else "")


def run(build, password):
    with CaStack(build, password) as stack:
        first = stack.producer("--name", "p0", "--rows", 100)
        wait_until(lambda: "certificate" in stack.status()["last_error"], "the refusal is shown")
        assert stack.status()["connection"] == "down" and stack.sink.summary()["rows"] == 0
        stack.trust(True)
        finish(first, "producer")

        # While a connection is up only a signal makes it look; what is up stays up.
        stack.trust(False)
        stack.sidecar.send_signal(signal.SIGHUP)
        finish(stack.producer("--name", "p1", "--rows", 100), "producer")
        stack.sink.fault("close=message,times=1")
        held = stack.producer("--name", "p2", "--rows", 100)
        wait_until(lambda: stack.status()["connection"] == "down", "the new one is not trusted")
        stack.sidecar.send_signal(signal.SIGHUP)  # does not wait out the backoff
        wait_until(lambda: "certificate" in stack.status()["last_error"], "it was the certificate")
        stack.trust(True)
        finish(held, "producer")
        assert stack.stop_sidecar() == 0, stack.log_text()


def main():
    options = arguments(__doc__)
    run(options.build, None)
    if shutil.which("openssl"):
        run(options.build, "secret")
    else:
        print("no openssl program: PKCS#12 is skipped")


if __name__ == "__main__":
    main()
