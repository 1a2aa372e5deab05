#!/bin/sh
# Builds the models and runs them in loom. 77: cannot be done here, and why.
# usage: run.sh [TARGET_DIR]
set -u
cd "$(dirname "$0")" || exit 1
if ! command -v cargo >/dev/null; then
    echo "skipped: no cargo"
    exit 77
fi
[ $# -ge 1 ] && export CARGO_TARGET_DIR="$1"
if ! cargo fetch --locked --quiet && ! cargo fetch --locked --offline --quiet; then
    echo "skipped: loom cannot be fetched"
    exit 77
fi
cargo build --release --locked --offline --quiet || exit 1
exec "${CARGO_TARGET_DIR:-target}/release/qwp-ipc-model"
