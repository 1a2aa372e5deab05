#!/usr/bin/env bash
# Installs the producer library into a place of its own and builds programs against it as a stranger
# would: by pkg-config, by CMake, in C and C++, shared and static.
#
#   test_install.sh BUILD-DIR SOURCE-DIR
set -eu
build=$1
external=$2/tests/clients/external
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

skip() {
    echo "skipped: $*"
    exit 77
}
command -v c++ >/dev/null || skip "no C++ compiler"
command -v pkg-config >/dev/null || skip "no pkg-config"

for component in producer_runtime producer; do
    cmake --install "$build" --component "$component" --prefix "$prefix" >/dev/null
done

headers=$(cd "$prefix/include" && find . -type f)
[ "$headers" = ./qwp.h ] || { echo "one header expected, found: $headers"; exit 1; }
if grep -n 'core/\|ipc/\|qwp_fail\|qwp_error_prefix' "$prefix/include/qwp.h"; then
    echo "the installed header tells of the inside"
    exit 1
fi

check() {
    local rings output
    rings=$(mktemp -d -p "$work")
    output=$("$@" "$rings")
    [[ $output =~ ^[0-9]+\.[0-9]+\.[0-9]+\ ok\ [0-9]+$ ]] || { echo "$*: $output"; exit 1; }
    [ "$(find "$rings" -name '*.ring' | wc -l)" = 1 ] || { echo "$*: no ring"; exit 1; }
    echo "ok: $(basename "$1")"
}

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name qwp.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir qwp)
warnings="-Wall -Wextra -Werror -pedantic"
# shellcheck disable=SC2046,SC2086
{
    cc -std=c99 $warnings "$external/program.c" -o "$work/pc_c" $(pkg-config --cflags --libs qwp)
    c++ -std=c++11 $warnings "$external/program_cxx.cc" -o "$work/pc_cxx" \
        $(pkg-config --cflags --libs qwp)
    cc -std=c11 $warnings "$external/program.c" -o "$work/pc_static" \
        $(pkg-config --cflags qwp) "$libdir/libqwp.a" -pthread
}
LD_LIBRARY_PATH=$libdir check "$work/pc_c"
LD_LIBRARY_PATH=$libdir check "$work/pc_cxx"
check "$work/pc_static"

cmake -S "$external" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/cmake" >/dev/null
for program in c_qwp cxx_qwp c_qwp_static cxx_qwp_static; do
    check "$work/cmake/$program"
done
