#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and tests Coeus for aarch64 on an x86-64 machine: aarch64.sh [FOLDER]; a FOLDER keeps the root file system. A
# bare Debian 12 for arm64 (debian.sh) runs under QEMU's user emulation. It gets the cross compiler from x86-64 to
# aarch64, in /opt/cross, since an emulated compiler takes ten times as long. The tests of kernels, layers, files and
# golden values run there. COEUS_AARCH64: the value of -march (default: armv8-a, for every CPU; armv8.6-a and later have
# dot products in bfloat16).
set -eu
cd "$(dirname "$0")/../.."
export COEUS_DEBIAN_ARCH=arm64
[ $# = 0 ] || export COEUS_ROOT="$1"
apt="DEBIAN_FRONTEND=noninteractive apt-get -qq"
# Debian's cross compiler cannot be installed together with its target's own libraries, so its packages are unpacked
cross="[ -d /opt/cross ] || {
    dpkg --add-architecture amd64 && $apt update &&
    $apt install -y --no-install-recommends cmake:amd64 ninja-build:amd64 libisl23:amd64 libmpc3:amd64 libmpfr6:amd64 \
        libgmp10:amd64 libzstd1:amd64 zlib1g:amd64 libstdc++6:amd64 libjansson4:amd64 &&
    mkdir -p /tmp/cross && cd /tmp/cross && $apt download g++-12-aarch64-linux-gnu:amd64 gcc-12-aarch64-linux-gnu:amd64 \
        cpp-12-aarch64-linux-gnu:amd64 binutils-aarch64-linux-gnu:amd64 libstdc++-12-dev-arm64-cross \
        libgcc-12-dev-arm64-cross libc6-dev-arm64-cross linux-libc-dev-arm64-cross &&
    for package in *.deb; do dpkg -x \$package /opt/cross; done &&
    cp -a /opt/cross/usr/lib/x86_64-linux-gnu/*.so* /usr/lib/x86_64-linux-gnu/; }"
compiler=/opt/cross/usr/bin/aarch64-linux-gnu
exec tests/systems/debian.sh bookworm "$cross" "tools/deps.sh build test" \
    "cmake --preset release -DCOEUS_ARCH=${COEUS_AARCH64:-armv8-a} \
     -DCMAKE_C_COMPILER=$compiler-gcc-12 -DCMAKE_CXX_COMPILER=$compiler-g++-12" \
    "cmake --build build --target coeus_program test_kernels test_layers test_io test_golden" \
    "build/coeus info --build" \
    "tools/test.sh build --tests-regex '^(unit/(kernels|layers|io)|golden):'"
