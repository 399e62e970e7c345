#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of the parts named as arguments (sections of packages.txt; none: all of them)
# and does nothing where all are there. Without root or a sudo that asks nothing, prints the one line to run
# and ends with 2. On a system without apt, names what is needed and leaves the search to CMake.
set -eu

list=$(dirname "$0")/packages.txt
parts=${*:-build run test lint bench fuzz bundle venv}

has() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }
mpi=${COEUS_MPI:-openmpi}
[ -n "${COEUS_MPI:-}" ] || has libopenmpi-dev || ! has libmpich-dev || mpi=mpich
case $mpi in
    openmpi | mpich) ;;
    *)
        echo "deps: COEUS_MPI = $mpi: no such MPI; known are openmpi (the default) and mpich" >&2
        exit 2
        ;;
esac
case " $parts " in
    *" build "*) parts="$parts $mpi" ;;
esac

packages=$(awk -v parts="$parts" '
    BEGIN { count = split(parts, names, " "); for (i = 1; i <= count; ++i) wanted[names[i]] = 1 }
    /^#/ { next }
    /^\[/ { section = substr($1, 2, length($1) - 2); next }
    section in wanted { for (i = 1; i <= NF; ++i) if (!seen[$i]++) print $i }' "$list")
if [ -z "$packages" ]; then
    echo "deps: no such part: $parts; parts are build run test lint bench fuzz bundle venv" >&2
    exit 2
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    case " $parts " in
        *" build "*)
            echo "deps: this system has no apt. Needed: a C++20 compiler, CMake >= 3.25, Ninja, MPI, parallel HDF5," \
                "fmt, spdlog, nlohmann-json, toml++, Boost.Program_options, oneDNN, OpenBLAS, hwloc, PCRE2," \
                "xxHash; for the tests Catch2. What is missing is named below." ;;
    esac
    exit 0
fi

# dpkg-query says "install ok installed" for what is there, and complains about names it has never seen
installed=$(dpkg-query -W -f '${Package} ${Status}\n' $(echo "$packages" | tr '|' ' ') 2>/dev/null |
    sed -n 's/ install ok installed$//p') || true
is_installed() {
    case "
$installed
" in
        *"
$1
"*) ;;
        *) return 1 ;;
    esac
}
any_installed() { # A|B
    for name in $(echo "$1" | tr '|' ' '); do
        ! is_installed "$name" || return 0
    done
    return 1
}
missing=
for package in $packages; do
    any_installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

# of A|B the first that this release has; a package that it does not have is named, after apt has read its lists
first_there() {
    for name in $(echo "$1" | tr '|' ' '); do
        if apt-cache show "$name" >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
    release=$(sed -n 's/^PRETTY_NAME="\(.*\)"$/\1/p' /etc/os-release)
    echo "deps: $release has no package $(echo "$1" | sed 's/|/, and no /g'): Debian 12 and 13 have it. Install what" \
        "cmake/dependencies.cmake names of it by hand (packaging/README.md), then call cmake --preset release instead of make" >&2
    return 1
}

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=sudo
else
    echo "deps: these packages are missing, and installing them needs root. Run this, then the same again:" >&2
    chosen=
    for package in $missing; do
        chosen="$chosen $(first_there "$package" 2>/dev/null || echo "${package%%|*}")"
    done
    echo "    apt-get update && apt-get install -y --no-install-recommends$chosen" >&2
    exit 2
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@" </dev/null >"$log" 2>&1
}
failed() {
    cat "$log" >&2
    echo "deps: apt could not install the packages; its messages are above" >&2
    exit 3
}
apt update || failed
chosen=
for package in $missing; do
    name=$(first_there "$package") || exit 3
    chosen="$chosen $name"
done
echo "deps: installing$chosen"
apt install -y --no-install-recommends $chosen || failed
