#!/usr/bin/env bash
# The shared library exports what the public header declares, and nothing else.
#
#   test_exports.sh LIBRARY PUBLIC-HEADER
set -eu
# Comments go first, then each declaration is one line.
declared=$(sed -e 's@/\*.*\*/@@' -e '/\/\*/,/\*\//d' "$2" | tr '\n' ' ' |
    grep -o 'QWP_API [^;]*(' | grep -o 'qwp_[a-z0-9_]*(' | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | sort -u)
if [ "$declared" != "$exported" ]; then
    echo "declared < > exported"
    diff <(echo "$declared") <(echo "$exported") || true
    exit 1
fi
echo "$(echo "$exported" | wc -l) functions"
