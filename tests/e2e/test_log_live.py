#!/usr/bin/env python3
"""Aim: whatever happens, the log is lines that parse, repeated events are folded, and no secret stands in it.
Method: an outage, wrong credentials and a flood of broken rings, at level debug, in both formats."""
import json
import os
import re

from stack import Stack, arguments, wait_until

LOGFMT = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=(?P<level>debug|info|warn|error)'
                    r'(?P<pairs>( [a-z_]+=("([^"\\]|\\.)*"|[^ "=\\]+))+)')
PAIR = re.compile(r' ([a-z_]+)=("((?:[^"\\]|\\.)*)"|[^ ]+)')
BROKEN_RINGS, BURST = 40, 10


def parse_logfmt(line):
    whole = LOGFMT.fullmatch(line)
    assert whole, line
    found = {key: re.sub(r'\\(.)', r'\1', quoted) or bare
             for key, bare, quoted in PAIR.findall(whole["pairs"])}
    return {"level": whole["level"], **found}


def parse_json(line):
    found = json.loads(line)
    assert {"time", "level", "msg"} <= set(found), line
    return found


def events(stack, parse):
    lines = stack.log_text().split("\n")
    return [parse(line) for line in lines[:-1]]  # the last one may be half written


def run(build, log_format, parse):
    conf = "token=s3cret-t0ken;reconnect_max_backoff_millis=50;close_flush_timeout_millis=100;"
    with Stack(build, sink=["--token", "s3cret-other"], conf=conf,
               sidecar=["--log-level", "debug", "--log-format", log_format]) as stack:
        def named(name):
            return [event for event in events(stack, parse) if event["msg"] == name]

        wait_until(lambda: named("down"), "credentials are refused")
        for i in range(BROKEN_RINGS):
            name = os.path.join(stack.rings, "default", "broken%d.ring" % i)
            with open(name + ".tmp", "wb") as file:
                file.write(b"nothing of a ring" * 1000)
            os.rename(name + ".tmp", name)
        # Events come in order: when this one is attached, all of those were refused.
        stack.producer("--name", 'odd "name" =\\', "--forever", "--pause-us", 1000)
        wait_until(lambda: named("ring attached"), "the good one is attached")
        wait_until(lambda: stack.status()["rows_stored"] > 0, "it has given rows")
        assert stack.stop_sidecar() == 3  # rows stay; the end tells how many got no line of their own
        refused = named("ring refused")
        assert len(refused) == BURST + 1, refused
        assert int(refused[-1]["folded"]) == BROKEN_RINGS - BURST, refused
        everything = events(stack, parse)
        assert any(event.get("producer") == 'odd "name" =\\' for event in everything)
        assert "s3cret" not in stack.log_text()
        print("%s: %d lines" % (log_format, len(everything)))


if __name__ == "__main__":
    options = arguments(__doc__)
    run(options.build, "logfmt", parse_logfmt)
    run(options.build, "json", parse_json)
