#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of the parts given as arguments (sections of packages.txt; without arguments: all of
# them). Packages that are installed already are skipped. Without root and without a sudo that needs no password, it
# prints the command to run as root and ends with exit code 2. On a system without apt it names what is needed and
# leaves the search to CMake. COEUS_MPI=mpich chooses MPICH instead of Open MPI.
set -eu

list=$(dirname "$0")/packages.txt
parts=${*:-build run test lint bench sanitize bundle venv}

# the packages of the list that are installed; dpkg-query complains about names that it has never seen
installed=" $(dpkg-query -W -f '${Package} ${Status}\n' $(sed '/^[#[]/d' "$list" | tr '|,?' '   ') 2>/dev/null |
    sed -n 's/ install ok installed$//p' | tr '\n' ' ')"
has() { # NAME,NAME...
    IFS=,
    for name in $1; do
        case $installed in
            *" $name "*) ;;
            *) unset IFS && return 1 ;;
        esac
    done
    unset IFS
}
mpi=${COEUS_MPI:-openmpi}
[ -n "${COEUS_MPI:-}" ] || has libopenmpi-dev || ! has libmpich-dev || mpi=mpich
case $mpi in
    openmpi | mpich) ;;
    *)
        echo "deps: COEUS_MPI = $mpi: there is no such MPI; the choices are openmpi (the default) and mpich" >&2
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
    echo "deps: no such part: $parts; parts are build run test lint bench sanitize bundle venv" >&2
    exit 2
fi

# the names of libraries in cmake/dependencies.cmake: "OpenMP, parallel HDF5, Boost, ..."
libraries() {
    word='\("[^"]*"\|[^" ]*\)'
    sed -n "s/^coeus_find([^ ]* $word $word \"\([^\"]*\)\".*/\3/p
        s/^coeus_find_headers([^ ]* [^ ]* \([^ ]*\) .*/\1/p
        s/^ *coeus_missing(\"\([^\"\$]*[^\"\$ (]\)[ \"].*/\1/p" "$(dirname "$0")/../cmake/dependencies.cmake" |
        sed 's/ (of$//' | paste -sd, | sed 's/,/, /g'
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    case " $parts " in
        *" build "*)
            echo "deps: this system has no apt. Needed: a C++20 compiler, CMake >= 3.25, Ninja, MPI, $(libraries);" \
                "for the tests Catch2 and Boost.Context. CMake names what is missing. packaging/README.md says how" \
                "to build it." ;;
    esac
    exit 0
fi

if [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; }; then
    may_install=yes
else
    may_install=
fi
missing=
for package in $packages; do
    case $package in
        *\?)
            package=${package%\?}
            [ -n "$may_install" ] || continue
            ;;
    esac
    found=no
    IFS='|'
    for choice in $package; do
        ! has "$choice" || found=yes
    done
    unset IFS
    [ $found = yes ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

has_lists() {
    apt-cache policy 2>/dev/null | grep -q ' Packages$'
}
is_known() { # NAME,NAME...: whether the release has each of them
    for name in $(echo "$1" | tr ',' ' '); do
        apt-cache policy "$name" 2>/dev/null | grep -q '^  Candidate: [^(]' || return 1
    done
}
# sets `chosen`: of A|B the first that this release has; of A,B each
choose() {
    chosen=
    lacking=
    for package in $missing; do
        choice=
        for candidate in $(echo "$package" | tr '|' ' '); do
            [ -n "$choice" ] || ! is_known "$candidate" || choice=$candidate
        done
        if [ -n "$choice" ]; then
            chosen="$chosen $(echo "$choice" | tr ',' ' ')"
        else
            lacking="$lacking $package"
        fi
    done
}
say_lacking() {
    [ -n "$lacking" ] || return 0
    release=$(sed -n 's/^PRETTY_NAME="\(.*\)"$/\1/p' /etc/os-release)
    for package in $lacking; do
        echo "deps: $release has no package $(echo "$package" | sed 's/,/ with /g; s/|/, and no /g')" >&2
    done
    case " $parts " in
        *" build "*)
            echo "deps: packaging/README.md says how to build the libraries without packages; then run" \
                "cmake --preset release and cmake --build --preset release instead of make" >&2 ;;
    esac
}

if [ "$(id -u)" = 0 ]; then
    as_root=
elif [ -n "$may_install" ]; then
    as_root=sudo
else
    if has_lists; then
        choose
        say_lacking
    else
        chosen=
        for package in $missing; do chosen="$chosen $(echo "${package%%|*}" | tr ',' ' ')"; done
    fi
    if [ -n "$chosen" ]; then
        echo "deps: these packages are missing, and only root can install them. As root, run this line; then run make again:" >&2
        echo "    apt-get update && apt-get install -y --no-install-recommends$chosen" >&2
    fi
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
choose
say_lacking
[ -z "$lacking" ] || exit 3
echo "deps: installing$chosen"
apt install -y --no-install-recommends $chosen || failed
