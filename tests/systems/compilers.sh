#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds Coeus and its tests with other compilers, fails at any warning, and runs the tests: compilers.sh COMPILER...,
# such as g++-11 or clang++-14. COEUS_ONLY_BUILD=1: builds only the program and the tests of the kernels, and runs none.
# It is for a bare Debian made by debian.sh: it installs the compilers, and each builds in its own folder,
# build-COMPILER.
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo "compilers.sh: name at least one compiler, for example compilers.sh g++-11 clang++-14" >&2 && exit 2; }
for compiler in "$@"; do
    case $compiler in
        g++-[0-9]* | clang++-[0-9]*) ;;
        *)
            echo "compilers.sh: $compiler is neither g++-VERSION nor clang++-VERSION" >&2
            exit 2
            ;;
    esac
done
tools/deps.sh build test
for compiler in "$@"; do
    version=${compiler##*-}
    case $compiler in
        g++-*) packages=$compiler c_compiler=gcc-$version ;;
        *) packages="clang-$version libomp-$version-dev" c_compiler=clang-$version ;;
    esac
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $packages >/dev/null
    start=$(date +%s)
    cmake -S . -B build-$compiler -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_COMPILE_WARNING_AS_ERROR=ON \
        ${COEUS_ARCH:+-DCOEUS_ARCH=$COEUS_ARCH} -DCMAKE_CXX_COMPILER=$compiler -DCMAKE_C_COMPILER=$c_compiler >/dev/null
    if [ "${COEUS_ONLY_BUILD:-0}" = 1 ]; then
        cmake --build build-$compiler --target coeus_program test_kernels
    else
        cmake --build build-$compiler --target coeus_tests coeus_kernel_tests
    fi
    echo "$compiler: built in $(($(date +%s) - start)) s"
    [ "${COEUS_ONLY_BUILD:-0}" = 1 ] || tools/test.sh build-$compiler
done
