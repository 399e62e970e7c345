#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a CUDA 12.4 toolkit in a new folder, for bundles for older drivers: cuda12_toolkit.sh FOLDER. The parts are the
# packages of Debian 13 (section non-free), which apt downloads (1.3 GB) and checks; they are unpacked, not installed.
# This works on Debian 12 too, since all of it needs glibc 2.34. Then:
#     make bundle CUDA_HOME=FOLDER
# COEUS_DEBIAN_MIRROR names a Debian mirror, by default that of this system. cuda12_toolkit.sh FOLDER DEBS takes the
# packages from the folder DEBS instead of downloading them.
set -eu
fail() {
    echo "cuda12_toolkit.sh: $1" >&2
    exit 2
}
[ $# = 1 ] || [ $# = 2 ] || fail "usage: cuda12_toolkit.sh FOLDER [DEBS]"
[ ! -e "$1" ] || fail "$1 exists already; name a new folder"
[ "$(uname -m)" = x86_64 ] || fail "the packages are for x86-64, but this machine is $(uname -m)"
command -v dpkg-deb >/dev/null || fail "there is no dpkg-deb: this works on Debian and Ubuntu"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# = 2 ]; then
    debs=$(cd "$2" && pwd)
else
    mirror=${COEUS_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(COMPONENT) $(REPO_URI)' 'Identifier: Packages' \
        'Origin: Debian' | sed -n '/security/d; s/^main //p' | head -n 1)}
    [ -n "$mirror" ] || fail "this system names no Debian mirror; set COEUS_DEBIAN_MIRROR"
    debs=$work/debs
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$debs"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie non-free" >"$work/sources.list"
    # lists and cache of its own: nothing of the system changes
    apt() {
        apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
            -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)" "$@"
    }
    apt update
    (cd "$debs" && apt download nvidia-cuda-toolkit nvidia-cuda-dev libcudart12 libcublaslt12 libnvvm4)
fi

root=$work/root
mkdir "$root"
# PACKAGE PATH... unpacks these parts of a package
unpack() {
    package=$1
    shift
    for deb in "$debs/$package"_*.deb; do
        [ -f "$deb" ] || fail "$debs has no $package"
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --wildcards "$@"
    done
}
unpack nvidia-cuda-toolkit ./usr/bin ./usr/lib/nvidia-cuda-toolkit
unpack nvidia-cuda-dev ./usr/include './usr/lib/*/stubs/libcuda.so' './usr/lib/*/libcudart_static.a' \
    './usr/lib/*/libcudadevrt.a' './usr/lib/*/libcudart.so' './usr/lib/*/libcublasLt.so'
unpack libcudart12 './usr/lib/*.so*'
unpack libcublaslt12 './usr/lib/*.so*'
unpack libnvvm4 './usr/lib/*.so*'

# the layout of NVIDIA's toolkit
debian=$root/usr/lib/nvidia-cuda-toolkit
rm -f "$root/usr/bin/nvcc" "$root/usr/bin/compute-sanitizer" "$debian/bin/gcc" "$debian/bin/g++" "$debian/bin/nvcc.profile"
mkdir -p "$root/toolkit/nvvm/bin" "$root/toolkit/lib64"
mv "$root/usr/bin" "$root/toolkit/bin"
mv "$debian/bin/cicc" "$root/toolkit/nvvm/bin/"
mv "$debian/bin/"* "$root/toolkit/bin/"
mv "$debian/libdevice" "$root/toolkit/nvvm/"
mv "$root/usr/include" "$root/toolkit/include"
mv "$root"/usr/lib/*-linux-gnu/* "$root/toolkit/lib64/"
cat >"$root/toolkit/bin/nvcc.profile" <<'END'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
LD_LIBRARY_PATH += $(TOP)/lib64:
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib$(_TARGET_SIZE_)/stubs" "-L$(TOP)/lib$(_TARGET_SIZE_)"
END
"$root/toolkit/bin/nvcc" --version >/dev/null
mkdir -p "$(dirname "$1")"
mv "$root/toolkit" "$1"
echo "$1: CUDA $("$1/bin/nvcc" --version | sed -n 's/.*release [0-9.]*, V//p')"
