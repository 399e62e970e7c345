#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Follows the recipe of packaging/README.md for a cluster with modules, inside a bare Debian 12 (debian.sh). The
# packages GCC 11, CMake, Ninja, MPI, HDF5, Boost and OpenBLAS take the place of modules. A user who is not root,
# without apt, builds the other libraries from their sources, and Coeus with them. Then examples/resume_elsewhere runs.
set -eu
cd "$(dirname "$0")/../.."

if [ "$(id -u)" = 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    sed 's/^deb /deb-src /' /etc/apt/sources.list >/etc/apt/sources.list.d/source.list
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends g++-11 cmake ninja-build libopenmpi-dev openmpi-bin libhdf5-openmpi-dev \
        libboost-program-options-dev libboost-context-dev libopenblas-openmp-dev dpkg-dev xz-utils bzip2 >/dev/null
    id someone >/dev/null 2>&1 || useradd --create-home someone
    mkdir -p /home/someone/sources
    cd /home/someone/sources
    # the headers of four libraries and the sources of eight; those that are already there are kept
    for package in libfmt-dev libspdlog-dev nlohmann-json3-dev libtomlplusplus-dev; do
        [ -d headers/$package ] && continue
        apt-get -qq download $package >/dev/null
        mkdir -p headers/$package
        dpkg -x ${package}_*.deb headers/$package
    done
    for package in onednn hwloc pcre2 utf8proc sentencepiece xxhash libzstd zlib; do
        [ -d $package ] && continue
        rm -rf part && mkdir part
        (cd part && apt-get -qq source $package >/dev/null 2>&1) || {
            echo "modules.sh: Debian's mirror does not have the source of $package: put a release of it into $PWD/$package" >&2
            exit 1
        }
        mv part/*/ $package
        rm -rf part
    done
    chown -R someone: /home/someone /coeus
    mv /usr/bin/apt-get /usr/bin/apt-get.hidden
    trap 'mv /usr/bin/apt-get.hidden /usr/bin/apt-get' EXIT
    su someone -c "cd /coeus && tests/systems/modules.sh"
    exit
fi

libraries=$HOME/coeus-libraries
mkdir -p "$libraries/include"
cd "$HOME/sources"
export CC=gcc-11 CXX=g++-11
# the commands of packaging/README.md
for folder in fmt spdlog nlohmann toml++; do
    cp -r headers/*/usr/include/$folder "$libraries/include"
done
by_cmake() { # FOLDER OPTIONS...
    folder=$1
    shift
    cmake -S "$folder" -B "$folder.build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$libraries" "$@" >/dev/null
    cmake --build "$folder.build" --target install >"$folder.log" 2>&1 || { tail -n 20 "$folder.log"; exit 1; }
    echo "$folder: built"
}
by_make() { # FOLDER MAKE_ARGUMENTS...
    folder=$1
    shift
    (cd "$folder" && { [ ! -x configure ] || ./configure --prefix="$libraries"; } && make -j "$(nproc)" "$@") >"$folder.log" 2>&1 ||
        { tail -n 20 "$folder.log"; exit 1; }
    echo "$folder: built"
}
by_cmake onednn -DDNNL_BUILD_TESTS=OFF -DDNNL_BUILD_EXAMPLES=OFF "-DDNNL_ENABLE_PRIMITIVE=MATMUL;REORDER"
by_cmake sentencepiece
by_cmake pcre2 -DBUILD_SHARED_LIBS=ON
by_make hwloc install
by_make zlib install
by_make xxhash install PREFIX="$libraries"
by_make libzstd/lib install PREFIX="$libraries"
by_make utf8proc install prefix="$libraries"

cd /coeus
export CMAKE_PREFIX_PATH="$libraries"
[ "$(uname -m)" != x86_64 ] || export COEUS_ARCH=x86-64-v3
make
build/coeus info --build
rm -rf /tmp/resume_elsewhere
examples/resume_elsewhere/run.sh /tmp/resume_elsewhere
