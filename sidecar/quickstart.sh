#!/usr/bin/env bash
# From nothing to rows in a QWP server over TLS: installs what is missing (as root), builds, starts the
# bundled server and a sidecar, loads TSBS data with four producer processes, and compares what was sent,
# encoded, acknowledged and counted.
#
#   sidecar/quickstart.sh [BUILD-DIR]      [build]
set -euo pipefail
cd "$(dirname "$0")/.."
. sidecar/packages.sh
build=${1:-build}
processes=4

qwp_install_packages "${qwp_build_packages[@]}"
echo "== building in $build"
mkdir -p "$build"
if ! { cmake -S . -B "$build" -G Ninja && cmake --build "$build" -j "$(nproc)" \
    --target qwp-sidecar qwp-sink qwp-feed; } >"$build/build.log" 2>&1; then
    tail -n 40 "$build/build.log" >&2
    exit 1
fi
bin=$(cd "$build" && pwd)/bin

work=$(mktemp -d)
pids=()
finish() {
    kill "${pids[@]}" 2>/dev/null || true
    wait "${pids[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# Waits until a command succeeds; what the programs said is shown when it never does.
await() {
    local i
    for ((i = 0; i < 200; i++)); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.05
    done
    cat "$work"/*.log >&2
    exit 1
}

echo "== starting the bundled server on wss, with a fresh certificate"
mkfifo "$work/orders"
"$bin/qwp-sink" --listen 127.0.0.1:0 --port-file "$work/port" --tls-self-signed "$work/tls" \
    --summary "$work/counted.json" <>"$work/orders" >"$work/sink.out" 2>"$work/sink.log" &
sink=$!
pids+=("$sink")
await test -s "$work/port"
conf="wss::addr=localhost:$(cat "$work/port");tls_roots=$work/tls/ca.pem;"

echo "== starting a sidecar"
QDB_CLIENT_CONF=$conf "$bin/qwp-sidecar" run --rings "$work/rings" 2>"$work/sidecar.log" &
sidecar=$!
pids+=("$sidecar")
await grep -q msg=.ready "$work/sidecar.log"

for load in "cpu-only qwpb tsbs-cpu-only.qwpb.gz 50" "devops ilp tsbs-devops.ilp.gz 10"; do
    read -r name format file repeat <<<"$load"
    echo "== loading TSBS $name ($format, $repeat times) with $processes producer processes"
    gzip -dc "tests/data/$file" >"$work/$name"
    "$bin/qwp-feed" --rings "$work/rings" --format "$format" --processes "$processes" \
        --repeat "$repeat" --no-progress --json "$work/$name" >"$work/$name.json"
done

"$bin/qwp-sidecar" status --rings "$work/rings" --json >"$work/encoded.json"
kill -TERM "$sidecar"
wait "$sidecar" || { cat "$work/sidecar.log" >&2; exit 1; }
kill -TERM "$sink"
wait "$sink"

python3 - "$work" <<'PY'
import json
import sys


def read(name):
    with open(f"{sys.argv[1]}/{name}.json") as file:
        return json.load(file)


encoded, counted = read("encoded"), read("counted")
rows, ok = [], True
for name in ("cpu-only", "devops"):
    fed = read(name)
    ok &= fed["rows_acked"] == fed["rows_sent"] > 0
    print("%-9s %10d rows in %.2f s: %.2f million rows/s to the last acknowledgement" %
          (name, fed["rows_sent"], fed["seconds"], fed["rows_sent"] / fed["seconds"] / 1e6))
    rows.append(fed["tables"])
sent = {table: sum(tables.get(table, 0) for tables in rows) for tables in rows for table in tables}
print("\n%-12s %12s %12s %12s %12s" % ("table", "sent", "encoded", "acknowledged", "counted"))
for table, n in sorted(sent.items()):
    # A feed ends when each of its rows is acknowledged, so what it sent of a table is.
    line = [n, encoded["tables"].get(table, 0), n if ok else 0, counted["tables"].get(table, 0)]
    ok &= len(set(line)) == 1
    print("%-12s %12d %12d %12d %12d" % (table, *line))
print("%-12s %12d %12d %12d %12d" % ("all", sum(sent.values()), encoded["rows_stored"],
                                     encoded["rows_acked"], counted["rows"]))
print("\n%.1f bytes a row on the wire, %d frames, one connection" %
      (counted["bytes"] / counted["rows"], encoded["frames_published"]))
ok &= sum(sent.values()) == encoded["rows_acked"] == counted["rows"]
print("everything that was sent has arrived" if ok else "THE COUNTS DIFFER")
sys.exit(0 if ok else 1)
PY
