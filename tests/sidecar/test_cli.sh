#!/usr/bin/env bash
# Aim: the commands answer as they say, with their exit codes, and print no secret.
# Usage: test_cli.sh PATH-OF-qwp-sidecar PATH-OF-qwp-sink
set -u
sidecar=$1
sink=$2
unset QDB_CLIENT_CONF QWP_RINGS QWP_INSTANCE
dir=$(mktemp -d)
server=$(mktemp -d)
sink_pid=
trap '[ -z "$sink_pid" ] || kill "$sink_pid" || cat "$server/log"; rm -rf "$dir" "$server"' EXIT
failed=0

# expect CODE WORDS COMMAND...: exit code, and a text that the output (both streams) holds.
expect() {
    local code=$1 words=$2 got out
    shift 2
    out=$("$@" 2>&1 </dev/null)
    got=$?
    if [ "$got" != "$code" ]; then
        echo "FAIL: '${*:2}' exits $got, expected $code: $out"
        failed=1
    fi
    case $out in
    *"$words"*) ;;
    *)
        echo "FAIL: '${*:2}' does not say '$words': $out"
        failed=1
        ;;
    esac
    case $out in
    *s3cret*)
        echo "FAIL: '${*:2}' shows a secret"
        failed=1
        ;;
    esac
}

expect 2 "Usage: qwp-sidecar COMMAND" "$sidecar"
expect 0 "Usage: qwp-sidecar COMMAND" "$sidecar" --help
expect 2 "unknown command 'bogus'" "$sidecar" bogus
expect 0 "qwp-sidecar " "$sidecar" version
expect 0 "sf_max_total_bytes=SIZE" "$sidecar" run --help
expect 0 "--watch" "$sidecar" status --help
expect 0 "--timeout TIME" "$sidecar" check -h
expect 2 "no connect string" "$sidecar" run --rings "$dir"
expect 2 "bogus: unknown key" "$sidecar" run --rings "$dir" --conf "ws::addr=a;bogus=1;token=s3cret;"
expect 2 "cannot open" "$sidecar" run --rings "$dir" --conf-file "$dir/none"
expect 2 "--conf: needs a value" "$sidecar" run --conf
expect 3 "no sidecar has run here" "$sidecar" status --rings "$dir"
expect 3 '"live":false' "$sidecar" status --rings "$dir" --json
expect 1 "cannot open" "$sidecar" status --rings "$dir" --name "$(printf 'x%.0s' {1..300})"
[ -z "$(ls -A "$dir")" ] || { echo "FAIL: status left something behind"; failed=1; }

# Port 1 is nobody's.
expect 1 "Connection refused" "$sidecar" check --rings "$dir" --conf "ws::addr=127.0.0.1:1;token=s3cret;"
expect 1 "addr: is missing" "$sidecar" check --rings "$dir" --conf "ws::token=s3cret;"
expect 0 "0 fail" "$sidecar" check --rings "$dir"
[ -z "$(ls -A "$dir")" ] || { echo "FAIL: check left something behind"; failed=1; }

# A server that answers.
"$sink" --listen 127.0.0.1:0 --port-file "$server/port" --tls-self-signed "$server" --auth u:s3cret \
    </dev/null >/dev/null 2>"$server/log" &
sink_pid=$!
for ((i = 0; i < 200; i++)); do
    [ ! -s "$server/port" ] || break
    sleep 0.05
done
tls="wss::addr=localhost:$(cat "$server/port");tls_roots=$server/ca.pem"
expect 0 "takes messages of" "$sidecar" check --rings "$dir" --conf "$tls;user=u;pass=s3cret"
expect 1 "correct username and password" "$sidecar" check --rings "$dir" --conf "$tls;user=u;pass=no"
expect 1 "certificate" "$sidecar" check --rings "$dir" --conf "${tls%;*};user=u;pass=s3cret"
expect 1 "remove request_durable_ack" "$sidecar" check --rings "$dir" \
    --conf "$tls;user=u;pass=s3cret;request_durable_ack=on"
if command -v python3 >/dev/null; then
    "$sidecar" check --rings "$dir" --json --conf "ws::addr=127.0.0.1:1;" |
        python3 -c 'import json,sys; o=json.load(sys.stdin); assert o["fail"] == 1, o' || failed=1
    "$sidecar" status --rings "$dir" --json |
        python3 -c 'import json,sys; o=json.load(sys.stdin); assert o["producers"] == [], o' || failed=1
fi
exit "$failed"
