# Sourced by the scripts that build: what Debian 12 and Ubuntu 24.04 need for it, and how to get it.

qwp_build_packages=(build-essential ca-certificates check cmake git libjemalloc-dev liburing-dev libssl-dev
    ninja-build openssl pkg-config python3)

# Installs those that are missing: as root by itself, otherwise it says what to install.
qwp_install_packages() {
    local missing=() package
    command -v dpkg-query >/dev/null || return 0
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "missing packages; run: sudo apt-get install ${missing[*]}" >&2
        return 1
    fi
    echo "== installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null && apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" </dev/null >/dev/null
}
