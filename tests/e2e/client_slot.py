"""Runs inside the environment with the Python client: opens a slot, writes rows if told to, and waits for
acknowledgements if told to.

usage: client_slot.py CONNECT_STRING ROWS WAIT_SECONDS"""
import os
import sys
import time

from questdb import Sender, TimestampNanos

conf, rows, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
sender = Sender.from_conf(conf)
sender.establish()
for n in range(rows):
    sender.row("client", symbols={"producer": "py", "tag": "py-%d" % n}, columns={"seq": n},
               at=TimestampNanos(1700000000000000000 + n))
    if n % 50 == 49:
        sender.flush()
deadline = time.monotonic() + seconds
while time.monotonic() < deadline and sender.acked_fsn() != sender.published_fsn():
    time.sleep(0.05)
print(sender.acked_fsn(), sender.published_fsn(), flush=True)
if seconds == 0:
    os._exit(0)  # as a crash would: nothing is flushed or waited for
sender.close()
