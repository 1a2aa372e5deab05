#!/usr/bin/env bash
# Aim: every C file is formatted as .clang-format says. Versions differ in detail, and ours is 14.
set -u
cd "$(dirname "$0")/.." || exit 1
format=$(command -v clang-format-14 || command -v clang-format)
case $("${format:-false}" --version 2>/dev/null) in
*" version 14."*) ;;
*)
    echo "skipped: no clang-format 14"
    exit 77
    ;;
esac
git rev-parse >/dev/null 2>&1 || { echo "skipped: not a git working copy"; exit 77; }
git ls-files -z '*.c' '*.h' | xargs -0 -n 16 -P "$(nproc)" "$format" --dry-run -Werror
