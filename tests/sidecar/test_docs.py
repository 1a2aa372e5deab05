#!/usr/bin/env python3
"""Aim: what is written about options, metrics and files is so. Method: compare with the programs and a live scrape.

  * sidecar/CONFIGURATION.md holds what --help prints, word for word (--write makes it so)
  * sidecar/OPERATIONS.md names each metric, and none that does not exist
  * sidecar/deploy/grafana-dashboard.json and the alerts use only metrics that exist
  * links of the documents lead somewhere
"""
import argparse
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
REFERENCE = os.path.join(ROOT, "sidecar", "CONFIGURATION.md")
DOCUMENTS = ["README.md", "sidecar/OPERATIONS.md", "sidecar/CONFIGURATION.md", "sidecar/deploy/README.md"]
COMMANDS = [("qwp-sidecar", "run"), ("qwp-sidecar", "status"), ("qwp-sidecar", "check"), ("qwp-sidecar", "inspect"),
            ("qwp-sidecar", "drain"), ("qwp-sidecar", "rejected"), ("qwp-feed",)]
PREFIX = "qwp_sidecar_"
SUFFIXES = ("_total", "_bucket", "_count", "_sum", "_info")


def text_of(name):
    with open(os.path.join(ROOT, name)) as file:
        return file.read()


def reference(binaries):
    parts = ["# Configuration\n\nWhat `--help` prints, which comes from the tables that also read the options and keys; "
             "`tests/sidecar/test_docs.py --write`\nrenews this page. A connect string goes into a file (`--conf-file`, over "
             "lines if you like), `$QDB_CLIENT_CONF` or `--conf`; secrets\nbelong into files of their own (`*_file` keys)."]
    for program, *command in COMMANDS:
        out = subprocess.run([os.path.join(binaries, program), *command, "--help"], capture_output=True, text=True)
        if out.returncode == 0:
            parts.append("## %s\n\n```\n%s\n```" % (" ".join([program, *command]), out.stdout.strip()))
    return "\n\n".join(parts) + "\n"


def families(binaries):
    """From a sidecar that has nothing to do."""
    with tempfile.TemporaryDirectory(prefix="qwp-docs-") as directory:
        log = os.path.join(directory, "log")
        with open(log, "w") as stderr:
            sidecar = subprocess.Popen([os.path.join(binaries, "qwp-sidecar"), "run", "--conf", "ws::addr=127.0.0.1:1;",
                                        "--rings", directory + "/rings", "--metrics", "127.0.0.1:0"], stderr=stderr)
        try:
            deadline = time.monotonic() + 60
            while True:
                with open(log) as file:
                    port = re.search(r"over HTTP\" address=\S+ port=(\d+)", file.read())
                if port:
                    break
                assert sidecar.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            with urllib.request.urlopen("http://127.0.0.1:%s/metrics" % port[1], timeout=60) as answer:
                return set(re.findall(r"^# TYPE (\S+) ", answer.read().decode(), re.M))
        finally:
            sidecar.kill()
            sidecar.wait()


def family_of(name, known):
    for suffix in ("",) + SUFFIXES:
        if name.endswith(suffix) and name[:len(name) - len(suffix)] in known:
            return name[:len(name) - len(suffix)]
    return None


def check_metrics(known):
    page = text_of("sidecar/OPERATIONS.md")
    table = page[page.index("\n## Metrics"):page.index("\n## Log lines")]
    named = {PREFIX + name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`([a-z_]+)`", row)}
    assert named == known, "not in OPERATIONS.md: %s; there and no metric: %s" % (known - named, named - known)
    for where in ("sidecar/OPERATIONS.md", "sidecar/deploy/grafana-dashboard.json", "sidecar/deploy/kubernetes.yaml"):
        for name in set(re.findall(PREFIX + r"[a-z_]+", text_of(where))):
            assert name == PREFIX or family_of(name, known), "%s: no metric %s" % (where, name)


def check_dashboard(known):
    board = json.loads(text_of("sidecar/deploy/grafana-dashboard.json"))
    shown = set()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            names = re.findall(r"\b(%s[a-z_]+)(?=\{|\[)" % PREFIX, target["expr"])
            assert names, target["expr"]
            shown |= {family_of(name, known) for name in names}
    assert None not in shown
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for one in board["panels"]:
        for other in board["panels"]:
            a, b = one["gridPos"], other["gridPos"]
            assert one is other or a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or \
                a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (one["title"], other["title"])
    print("dashboard: %d panels, %d of %d metrics" % (len(ids), len(shown), len(known)))


def check_links():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text_of(document)):
            if not target.startswith("http"):
                path = os.path.join(ROOT, os.path.dirname(document), target)
                assert os.path.exists(path), "%s: %s leads nowhere" % (document, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--write", action="store_true", help="renew sidecar/CONFIGURATION.md")
    options = parser.parse_args()
    binaries = os.path.join(os.path.abspath(options.build), "bin")
    wanted = reference(binaries)
    if options.write:
        with open(REFERENCE, "w") as file:
            file.write(wanted)
    assert text_of("sidecar/CONFIGURATION.md") == wanted, \
        "sidecar/CONFIGURATION.md is not what --help says: run tests/sidecar/test_docs.py --build BUILD --write"
    known = families(binaries)
    check_metrics(known)
    check_dashboard(known)
    check_links()


if __name__ == "__main__":
    main()
