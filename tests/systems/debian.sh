#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the README's commands in a bare Debian: debian.sh RELEASE [COMMAND...] (bookworm or trixie; default commands:
# "make run" and "make test"). It makes a root file system with debootstrap, copies the tree into it, and prints the
# time and exit code of each command. It needs root, debootstrap, and a Debian mirror (COEUS_DEBIAN_MIRROR; default:
# debootstrap's).
#   COEUS_ROOT=FOLDER   the root file system is made once, in FOLDER, and kept with everything built in it
#   COEUS_DEBIAN_ARCH=arm64   a Debian for another CPU, with QEMU's user emulation (package qemu-user-static). This
#                       registers QEMU with the machine's kernel (binfmt_misc) until the next boot
#   COEUS_SKIP=1        ends with 77 (skipped, for ctest) without root or debootstrap
set -eu
release=${1:?usage: debian.sh RELEASE [COMMAND...]}
shift
[ $# -gt 0 ] || set -- "make run" "make test"
tree=$(cd "$(dirname "$0")/../.." && pwd)

lacks() {
    if [ "${COEUS_SKIP:-0}" = 1 ]; then
        echo "skipped: $1"
        exit 77
    fi
    echo "debian.sh: $1" >&2
    exit 2
}
[ "$(id -u)" = 0 ] || lacks "only root can make a bare Debian"
command -v debootstrap >/dev/null || lacks "there is no debootstrap (Debian: apt-get install debootstrap)"

arch=${COEUS_DEBIAN_ARCH:-$(dpkg --print-architecture 2>/dev/null || echo amd64)}
case $arch in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *) echo "debian.sh: COEUS_DEBIAN_ARCH = $arch is not known; the choices are amd64 and arm64" >&2 && exit 2 ;;
esac
if [ "$(uname -m)" != $machine ]; then
    formats=/proc/sys/fs/binfmt_misc
    [ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats ||
        lacks "this kernel cannot emulate programs for other CPUs (binfmt_misc)"
    [ -e $formats/qemu-$machine ] || cat /usr/lib/binfmt.d/qemu-$machine.conf >$formats/register ||
        lacks "there is no emulation of $machine (Debian: apt-get install qemu-user-static)"
fi

# the mounts end with the namespace, even if the script is killed
if [ "${COEUS_INSIDE:-0}" = 0 ]; then
    unshare --mount true 2>/dev/null || lacks "this machine does not allow mounts (unshare --mount)"
    COEUS_INSIDE=1 exec unshare --mount --propagation private "$0" "$release" "$@"
fi

if [ -n "${COEUS_ROOT:-}" ]; then
    root=$COEUS_ROOT
    mkdir -p "$root"
else
    root=$(mktemp -d)
    trap 'umount -R "$root/proc" "$root/dev" "$root/sys" 2>/dev/null || :; rm -rf --one-file-system "$root"' EXIT
fi
if [ ! -e "$root/coeus-root" ]; then
    # an unfinished root is made again; any other folder is left alone
    if [ -n "$(ls -A "$root")" ] && [ ! -e "$root/coeus-root-unfinished" ]; then
        echo "debian.sh: COEUS_ROOT = $root is neither empty nor a root file system made by this script" >&2
        exit 2
    fi
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    touch "$root/coeus-root-unfinished"
    echo "debootstrap $release $arch $root"
    log=$root.log
    debootstrap --arch="$arch" --variant=minbase --include=ca-certificates,make "$release" "$root" \
        ${COEUS_DEBIAN_MIRROR:+"$COEUS_DEBIAN_MIRROR"} >"$log" 2>&1 ||
        { tail -n 20 "$log"; echo "debootstrap failed, see $log"; exit 1; }
    rm -f "$log"
    mv "$root/coeus-root-unfinished" "$root/coeus-root"
fi
chmod 755 "$root" # for users inside it other than root
# the network settings are those of the machine
cp /etc/resolv.conf "$root/etc/resolv.conf"
for file in /etc/apt/apt.conf.d/*prox* /etc/apt/auth.conf.d/*; do
    [ ! -f "$file" ] || { mkdir -p "$root$(dirname "$file")" && cp "$file" "$root$file"; }
done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"

mkdir -p "$root/coeus"
# files that the tree no longer has are removed from a root that is kept; builds and runs stay
find "$root/coeus" -mindepth 1 -maxdepth 1 ! -name 'build*' ! -name run ! -name outputs -exec rm -rf {} +
(cd "$tree" && git ls-files -z --cached --others --exclude-standard | tar -c --null --files-from=- --ignore-failed-read) |
    tar -x -C "$root/coeus"
reference=${COEUS_SHARED:-$tree/../shared} # files that the golden tests read
[ ! -d "$reference" ] || [ -e "$root/shared" ] || cp -rL "$reference" "$root/shared"

inside() { chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    COEUS_WARNINGS_AS_ERRORS=1 ${COEUS_REQUIRE_GOLDEN:+COEUS_REQUIRE_GOLDEN=$COEUS_REQUIRE_GOLDEN} sh -c "cd /coeus && $1" </dev/null; }
failed=0
number=0
for command in "$@"; do
    number=$((number + 1))
    log=$root/coeus-$number.log
    start=$(date +%s)
    code=0
    inside "$command" >"$log" 2>&1 || code=$?
    echo "Debian $(cat "$root/etc/debian_version") ($release, $arch): $(echo "$command" | head -n 1 | cut -c 1-90):" \
        "exit code $code after $(($(date +%s) - start)) s"
    grep -E '% tests passed|validation|Training completed|skipped: ' "$log" | tail -n 4 | sed 's/^/    /'
    [ $code = 0 ] || { failed=1; tail -n 40 "$log"; break; }
done
exit $failed
