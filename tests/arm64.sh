#!/usr/bin/env bash
# Builds for arm64 what a producer links, with warnings as errors, and runs its tests under qemu.
# Tests labelled "slow" or "no-emulator" are left out: an emulator on x86 orders memory as x86 does,
# so it proves layouts and code paths, never orderings.
set -eu
cd "$(dirname "$0")/.."
log=build-arm64/build.log
mkdir -p build-arm64
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
cmake -S . -B build-arm64 -G Ninja "${launcher[@]}" \
    -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/arm64/toolchain.cmake" -DQWP_WERROR=ON \
    -DQWP_BUILD_DAEMON=OFF -DQWP_BUILD_PERF=OFF >"$log" 2>&1 &&
    cmake --build build-arm64 -j "$(nproc)" >>"$log" 2>&1 || {
    tail -n 40 "$log"
    exit 1
}
# qemu takes MADV_DONTFORK and does nothing.
export QWP_SKIP_CASES="forked_child_that_forgets_does_not_hold_the_ring
    fork_leaves_the_producer_to_the_parent"
ctest --test-dir build-arm64 -j "$(nproc)" --output-on-failure --no-tests=error \
    -LE 'slow|no-emulator|no-sanitizer' -E '^example_|^test_client_progress$|^test_seglog_(crash|faults|damage)$|^test_cursors$'
