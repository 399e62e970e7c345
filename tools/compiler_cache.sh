#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compiler_cache.sh COMPILER ARGUMENT...: compiles through ccache, so that a clone in another folder finds what was
# compiled from the same text with the same options (cmake starts every compiler by it). Without ccache, without a
# folder that can be written, or with COEUS_NO_CACHE=1 it starts the compiler itself.
# The cache is $CCACHE_DIR, or coeus/ccache in the user's folder of caches.
[ -z "${COEUS_NO_CACHE:-}" ] && command -v ccache >/dev/null || exec "$@"

if [ -z "${CCACHE_DIR:-}" ]; then
    caches=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    [ -n "$caches" ] || exec "$@"
    CCACHE_DIR=$caches/coeus/ccache
    export CCACHE_DIR CCACHE_MAXSIZE="${CCACHE_MAXSIZE:-5G}"
fi
mkdir -p "$CCACHE_DIR" 2>/dev/null && [ -w "$CCACHE_DIR" ] || exec "$@"

# -march=native means another processor on another machine, which may use the same folder: the options that the
# compiler takes for it choose the part of the cache. nvcc's code for the host has no such option.
case $1 in
    *nvcc) meant= werror="-Werror all-warnings" ;;
    *) meant=$(cd / && "$1" -march=native -### -E -x c++ /dev/null 2>&1 | cksum) werror=-Werror ;;
esac
export CCACHE_NAMESPACE="coeus $meant"
# Paths below this folder count as relative ones, and the folder that the compiler starts in does not count; the text of
# the compiler does, not its date.
export CCACHE_BASEDIR="${0%/tools/*}" CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content

# A file without warnings has one object, whether warnings are errors (in .ci/run) or not. So it is compiled with
# $werror in both cases, and without it only if that fails.
strict=
for option; do
    shift
    case "$option" in
        -Werror) strict=yes ;;
        all-warnings) ;; # the second word of nvcc's
        *) set -- "$@" "$option" ;;
    esac
done
[ -z "$strict" ] || exec ccache "$@" $werror
if said=$(ccache "$@" $werror 2>&1); then
    [ -z "$said" ] || printf '%s\n' "$said" >&2
else
    exec ccache "$@"
fi
