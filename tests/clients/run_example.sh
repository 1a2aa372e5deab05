#!/bin/sh
# Runs an example in a rings directory of its own.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
"$1" --rings "$dir"
