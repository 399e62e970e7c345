#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of the parts named as arguments (sections of packages.txt; none: all of them)
# and does nothing where all are there. Without root or a sudo that asks nothing, prints the one line to run
# and ends with 2. On a system without apt, names what is needed and leaves the search to CMake.
set -eu

list=$(dirname "$0")/packages.txt
parts=${*:-build run test lint bench fuzz bundle venv}

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
                "xxHash; for the tests Catch2 2. What is missing is named below." ;;
    esac
    exit 0
fi

# dpkg-query says "install ok installed" for what is there, and complains about names it has never seen
installed=$(dpkg-query -W -f '${Package} ${Status}\n' $packages 2>/dev/null | sed -n 's/ install ok installed$//p') || true
missing=
for package in $packages; do
    case "
$installed
" in
        *"
$package
"*) ;;
        *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=sudo
else
    echo "deps: these packages are missing, and installing them needs root. Run this, then the same again:" >&2
    echo "    apt-get update && apt-get install -y --no-install-recommends$missing" >&2
    exit 2
fi

echo "deps: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@" </dev/null >"$log" 2>&1
}
if ! apt update || ! apt install -y --no-install-recommends $missing; then
    cat "$log" >&2
    echo "deps: apt could not install the packages; its messages are above" >&2
    exit 3
fi
