#!/bin/sh
# Runs every litmus test in herd7 and compares with what it says to expect.
# The AArch64 ones in the Arm model that comes with herd7, the C ones in rc11. 77: no herd7.
set -u
cd "$(dirname "$0")" || exit 1
if ! command -v herd7 >/dev/null; then
    echo "skipped: no herd7 (herdtools7) in the path"
    exit 77
fi
wrong=0
for file in *.litmus; do
    expected=$(sed -n 's/.*expect: \([A-Za-z]*\).*/\1/p' "$file")
    case $file in
    c11-*) found=$(herd7 -model rc11.cat "$file") ;;
    *) found=$(herd7 "$file") ;;
    esac
    found=$(echo "$found" | sed -n 's/^Observation [^ ]* \(.*\)$/\1/p')
    printf '%-36s %-10s %s\n' "${file%.litmus}" "$expected" "$found"
    case $found in
    "$expected "*) ;;
    *) wrong=$((wrong + 1)) ;;
    esac
done
[ "$wrong" -eq 0 ] || { echo "$wrong not as expected"; exit 1; }
