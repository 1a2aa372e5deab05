#!/usr/bin/env bash
# Runs all tests of the project: installs what is missing (as root), builds, tests.
#
#   tests/run.sh [STEP...]     steps: gcc asan clang arm64 (all of them unless named)
#
# gcc     the default build and every test
# asan    the same tests under AddressSanitizer and UndefinedBehaviorSanitizer, without the slow ones
# clang   a clean build by clang with warnings as errors
# arm64   cross-compiled, the layout tests under emulation
#
# The last line reads "N passed, N failed, N skipped"; the exit code is 0 when none failed.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C.UTF-8
jobs=$(nproc)
passed=0 failed=0 skipped=0
notes=()

. sidecar/packages.sh
packages=("${qwp_build_packages[@]}" clang clang-format python3-venv python3-yaml strace)
packages_arm64=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)

# note RESULT NAME: counts one outcome that is no ctest entry.
note() {
    case $1 in
    passed) passed=$((passed + 1)) ;;
    failed) failed=$((failed + 1)) notes+=("FAILED: $2") ;;
    skipped) skipped=$((skipped + 1)) notes+=("skipped: $2") ;;
    esac
}

# build DIR CMAKE-ARGUMENTS...
build() {
    local dir=$1 log=$1/build.log launcher=()
    shift
    mkdir -p "$dir"
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
    echo "== building $dir"
    if cmake -S . -B "$dir" -G Ninja "${launcher[@]}" "$@" >"$log" 2>&1 &&
        cmake --build "$dir" -j "$jobs" >>"$log" 2>&1; then
        note passed "build of $dir"
        while read -r line; do
            notes+=("$line")
        done < <(grep 'warning:' "$log" | sort -u | head -n 20)
        return 0
    fi
    tail -n 60 "$log"
    note failed "build of $dir"
    return 1
}

# run_ctest DIR CTEST-ARGUMENTS...: runs and counts.
run_ctest() {
    local dir=$1 xml count_of
    shift
    xml=$PWD/$dir/ctest.xml
    rm -f "$xml"
    echo "== testing $dir"
    ctest --test-dir "$dir" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$xml" "$@" </dev/null
    if [ ! -f "$xml" ]; then
        note failed "ctest in $dir"
        return
    fi
    count_of() {
        grep -o "<testcase [^>]* status=\"$1\"" "$xml" | wc -l
    }
    passed=$((passed + $(count_of run)))
    failed=$((failed + $(count_of fail)))
    skipped=$((skipped + $(count_of notrun) + $(count_of disabled)))
    while read -r name; do
        notes+=("FAILED: $name in $dir")
    done < <(sed -n 's/.*<testcase name="\([^"]*\)".* status="fail".*/\1/p' "$xml")
    while read -r name; do
        notes+=("skipped: $name in $dir")
    done < <(sed -n 's/.*<testcase name="\([^"]*\)".* status="notrun".*/\1/p' "$xml")
}

step_gcc() {
    build build -DCMAKE_C_COMPILER=gcc && run_ctest build
}

step_asan() {
    build build-asan -DCMAKE_C_COMPILER=gcc -DQWP_SANITIZE=address,undefined -DQWP_BUILD_PERF=OFF &&
        run_ctest build-asan -LE 'slow|no-sanitizer'
}

step_clang() {
    build build-clang -DCMAKE_C_COMPILER=clang -DQWP_WERROR=ON
}

step_arm64() {
    if [ ! -x tests/arm64.sh ]; then
        note skipped "arm64: no tests/arm64.sh"
        return
    fi
    if ! qwp_install_packages "${packages_arm64[@]}"; then
        note skipped "arm64: cross compiler or emulator is missing"
        return
    fi
    echo "== arm64"
    if tests/arm64.sh </dev/null; then
        note passed arm64
    else
        note failed arm64
    fi
}

qwp_install_packages "${packages[@]}" || note failed "installing packages"
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(gcc asan clang arm64)
for step in "${steps[@]}"; do
    case $step in
    gcc | asan | clang | arm64)
        started=$SECONDS
        "step_$step"
        echo "== $step took $((SECONDS - started)) s"
        ;;
    *) note failed "no step is called '$step'" ;;
    esac
done

echo
[ ${#notes[@]} -eq 0 ] || printf '%s\n' "${notes[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
