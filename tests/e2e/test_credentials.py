#!/usr/bin/env python3
"""Secrets come from files, are read again when these change, and are shown nowhere.

A wrong one stops the sending alone: rows are stored, the reason is shown, the server is not hammered. All
waits between attempts are set so long that only a look at the changed file (or SIGHUP) can end them."""
import os
import shutil
import signal
import time

from stack import Stack, arguments, finish, wait_until

SLOW = "reconnect_initial_backoff_millis=600000;reconnect_max_backoff_millis=600000;"


def replace(path, text):
    """In one step, as an operator's tool does."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def refused(stack, producer, word, rows=100):
    """The reason is shown, rows are stored all the same."""
    wait_until(lambda: word in stack.status()["last_error"], "the refusal is shown")
    wait_until(lambda: stack.status()["rows_stored"] == rows, "rows are stored")
    assert stack.status()["connection"] == "down" and producer.poll() is None
    assert stack.sink.summary()["rows"] == 0


def delivers(stack, producer, start):
    finish(producer, "producer")
    print("  delivered %.2f s after the change" % (time.monotonic() - start))
    assert stack.stop_sidecar() == 0, stack.log_text()


def corrected_token(build):
    with Stack(build, sink=["--token", "right-token"], conf="token_file={dir}/token;" + SLOW) as stack:
        producer = stack.producer("--name", "p0", "--rows", 100)
        refused(stack, producer, "401")
        start = time.monotonic()
        replace(os.path.join(stack.directory, "token"), "right-token\n")
        delivers(stack, producer, start)


def token_written_in_place(build):
    """Emptied and filled again, not replaced: what is read in between counts for nothing."""
    with Stack(build, sink=["--token", "right-token"], conf="token_file={dir}/token;" + SLOW) as stack:
        producer = stack.producer("--name", "p0", "--rows", 100)
        refused(stack, producer, "401")
        path = os.path.join(stack.directory, "token")
        before = stack.sink.summary()["refused"]
        open(path, "w").close()
        wait_until(lambda: stack.sink.summary()["refused"] > before, "the token before is tried")
        start = time.monotonic()
        with open(path, "w") as file:
            file.write("right-token\n")
        delivers(stack, producer, start)


def swapped_links(build):
    """As secrets are mounted into containers: DIR/token -> ..data/token, ..data -> a directory of a time."""
    with Stack(build, sink=["--token", "right-token"], conf="token_file={dir}/token;" + SLOW) as stack:
        path = lambda *names: os.path.join(stack.directory, *names)  # noqa: E731
        for name, token in (("..1", "wrong"), ("..2", "right-token")):
            os.mkdir(path(name))
            with open(path(name, "token"), "w") as file:
                file.write(token)
        os.symlink("..1", path("..data"))
        os.symlink("..data/token", path("token.link"))
        os.rename(path("token.link"), path("token"))
        stack.stop_sidecar()
        stack.start_sidecar()
        producer = stack.producer("--name", "p0", "--rows", 100)
        refused(stack, producer, "401")
        start = time.monotonic()
        os.symlink("..2", path("..data.new"))
        os.rename(path("..data.new"), path("..data"))
        delivers(stack, producer, start)


def corrected_password(build):
    with Stack(build, sink=["--auth", "someone:right-password"],
               conf="username=someone;password_file={dir}/token;" + SLOW) as stack:
        producer = stack.producer("--name", "p0", "--rows", 100)
        refused(stack, producer, "401")
        start = time.monotonic()
        replace(os.path.join(stack.directory, "token"), "right-password\n")
        delivers(stack, producer, start)


def corrected_conf_file(build):
    """A token within --conf-file."""
    with Stack(build, sink=["--token", "right-token"], conf=SLOW) as stack:
        stack.stop_sidecar()
        path = os.path.join(stack.directory, "conf")
        replace(path, stack.connect_string() + "token=wrong-token")
        command = stack.sidecar_command()
        command[2:4] = ["--conf-file", path]
        stack.sidecar_command = lambda: command
        stack.start_sidecar()
        producer = stack.producer("--name", "p0", "--rows", 100)
        refused(stack, producer, "401")
        start = time.monotonic()
        replace(path, stack.connect_string() + "token=right-token")
        delivers(stack, producer, start)


def server_changes_its_mind(build):
    """403, and nothing changes here: SIGHUP tries at once."""
    with Stack(build, sink=["--fault", "http=403,text=not you"], conf="token_file={dir}/token;" + SLOW) as stack:
        producer = stack.producer("--name", "p0", "--rows", 100)
        refused(stack, producer, "403")
        stack.sink.clear_faults()
        start = time.monotonic()
        stack.sidecar.send_signal(signal.SIGHUP)
        delivers(stack, producer, start)


def corrected_certificates(build):
    with Stack(build, conf=SLOW) as stack:
        ca = os.path.join(stack.directory, "tls", "ca.pem")
        stack.stop_sidecar()
        shutil.copy(ca, ca + ".right")
        shutil.copy("/etc/ssl/certs/ca-certificates.crt" if os.path.exists(
            "/etc/ssl/certs/ca-certificates.crt") else ca, ca)
        wrong = open(ca).read() != open(ca + ".right").read()
        if not wrong:
            print("  skipped: no other certificates on this machine")
            return
        stack.start_sidecar()
        producer = stack.producer("--name", "p0", "--rows", 100)
        refused(stack, producer, "certificate")
        start = time.monotonic()
        os.rename(ca + ".right", ca)
        delivers(stack, producer, start)


def slow_when_refused(build):
    """Near the longest delay from the first refusal on, not with a backoff that begins small."""
    with Stack(build, sink=["--token", "right-token"],
               conf="token_file={dir}/token;reconnect_initial_backoff_millis=1;"
                    "reconnect_max_backoff_millis=1000;") as stack:
        wait_until(lambda: stack.sink.summary()["refused"] >= 1, "a first refusal")
        start, first = time.monotonic(), stack.sink.summary()["refused"]
        wait_until(lambda: stack.sink.summary()["refused"] >= first + 3, "more of them")
        took = time.monotonic() - start
        assert took > 2 * 0.75 - 0.1, took
        assert stack.log_text().count('msg="down"') == 1


def shown_nowhere(build):
    """Not in the log, the status, the argument list or the control file; not even when a server (or a
    proxy) sends it back."""
    token, password = "tok3n-of-great-value", "passw0rd-of-great-value"
    for conf, sink, secrets in (
            ("token=%s;" % token, ["--token", token + "x"], [token]),
            ("username=u;password=%s;" % password, ["--auth", "u:other"], [password]),
            ("token_file={dir}/token;", ["--token", token + "x"], [token])):
        echo = "http=401,times=1,text=who is Bearer %s or u:%s or %s" % (token, password, token)
        with Stack(build, sink=[*sink, "--fault", echo], conf=conf + SLOW,
                   sidecar=["--log-level", "debug"]) as stack:
            replace(os.path.join(stack.directory, "token"), token)
            stack.sidecar.send_signal(signal.SIGHUP)
            wait_until(lambda: "401" in stack.status()["last_error"], "the refusal is shown")
            stack.sidecar.send_signal(signal.SIGHUP)
            wait_until(lambda: stack.sink.summary()["refused"] >= 2, "it is tried again")
            with open("/proc/%d/cmdline" % stack.sidecar.pid) as file:
                shown = file.read()
            assert "--conf" in shown
            shown += stack.log_text() + str(stack.status())
            for name in os.listdir(os.path.join(stack.rings, "default")):
                path = os.path.join(stack.rings, "default", name)
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        shown += file.read().decode("latin-1")
            assert stack.stop_sidecar() == 0
            shown += stack.log_text()
            for secret in secrets:
                assert secret not in shown, (secret, stack.log_text())


if __name__ == "__main__":
    options = arguments(__doc__)
    for scenario in (corrected_token, token_written_in_place, swapped_links, corrected_password,
                     corrected_conf_file, server_changes_its_mind, corrected_certificates,
                     slow_when_refused, shown_nowhere):
        print(scenario.__name__, flush=True)
        scenario(options.build)
