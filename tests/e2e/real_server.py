"""A real QuestDB server, started by whoever runs the tests, as oracle.

    QWP_REAL_SERVER=HOST:PORT        HTTP and QWP port of a server
    QWP_REAL_SERVER_TLS=HOST:PORT    the same behind a TLS proxy, with QWP_REAL_SERVER_CA=ca.pem

Without the first the tests that need it skip and say so."""
import json
import os
import sys
import time
import urllib.parse
import urllib.request


def server_or_skip():
    address = os.environ.get("QWP_REAL_SERVER")
    if not address:
        print("skipped: no QuestDB server; start one and set QWP_REAL_SERVER=HOST:PORT")
        sys.exit(77)
    return address


def connect_strings():
    """Of the plain and, when there is one, the TLS side: (name, connect string)."""
    yield "ws", "ws::addr=%s;" % server_or_skip()
    if os.environ.get("QWP_REAL_SERVER_TLS"):
        yield "wss", "wss::addr=%s;tls_roots=%s;" % (os.environ["QWP_REAL_SERVER_TLS"],
                                                     os.environ["QWP_REAL_SERVER_CA"])


def sql(query):
    """Rows of a query as lists; DDL gives none."""
    url = "http://%s/exec?query=%s" % (server_or_skip(), urllib.parse.quote(query))
    with urllib.request.urlopen(url, timeout=120) as answer:
        return json.load(answer).get("dataset", [])


def wait_rows(table, count, seconds=120):
    """An acknowledged row is in the write-ahead log; a SELECT sees it a little later."""
    deadline = time.monotonic() + seconds
    seen = None
    while seen != count:
        assert time.monotonic() < deadline, "%s has %s rows, not %d" % (table, seen, count)
        time.sleep(0.05)
        try:
            seen = sql('select count() from "%s"' % table)[0][0]
        except urllib.error.HTTPError:
            pass  # no such table yet
