#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles the CUDA sources for five GPUs, or for those that GPUS names, with the toolkit that the build takes:
# compile_matrix.sh [TOOLKIT ...]. It leaves out the compiler's most expensive optimisations, if the toolkit can. For
# each other TOOLKIT (a folder with bin/nvcc, CUDA 12.4 or newer, or a Python environment with NVIDIA's packages) it
# compiles the files that call the runtime and cuBLASLt, whose interfaces change between versions. A GPU that a toolkit
# does not know is left out, and named. The objects stay in build-cuda-matrix. The exit code is 77 ("skipped") without
# nvcc, and 1 if a file does not compile.
set -eu
cd "$(dirname "$0")/.."
if ! why=$(tools/find_nvcc.sh 2>&1); then
    echo "skipped: the kernels were not compiled for all GPUs: $why"
    exit 77
fi
# 100a and 120 from CUDA 12.8 on
gpus=${GPUS:-80 89 90a 100a 120}
interfaces="device/gpu device/named_range kernels/cuda/launch kernels/cuda/products/gemm kernels/cuda/libraries/cublaslt
    kernels/cuda/products/scaled_gemm kernels/cuda/attention/attention_cudnn"
failed=

compile() { # NAME OPTION [SOURCE ...]: all sources if none is named
    folder=build-cuda-matrix/$1
    option=$2
    shift 2
    if [ ! -f "$folder/build.ninja" ]; then
        cmake --preset cuda -B "$folder" "$option" -DCOEUS_BUILD_TESTS=OFF >"$folder.log" 2>&1 ||
            { cat "$folder.log" >&2; failed="$failed $folder"; return; }
    fi
    nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[^=]*=//p' "$folder/CMakeCache.txt")
    version=$("$nvcc" --version | sed -n 's/.*release .*, V//p')
    known=$("$nvcc" --list-gpu-arch)
    chosen=
    for gpu in $gpus; do
        case $known in
            *compute_${gpu%a}*) chosen="$chosen;$gpu-real" ;;
            *) echo "CUDA $version does not know sm_$gpu" ;;
        esac
    done
    fast=
    case $("$nvcc" --help) in *--Ofast-compile*) fast=--Ofast-compile=mid ;; esac # a third of the time, from 12.8 on
    cmake -S . -B "$folder" "-DCOEUS_CUDA_ARCH=${chosen#;}" "-DCMAKE_CUDA_FLAGS=$fast" >"$folder.log" 2>&1 ||
        { cat "$folder.log" >&2; failed="$failed $folder"; return; }
    objects=$(ninja -C "$folder" -t targets all | sed -n 's/^\(CMakeFiles\/coeus_cuda\(_sm_90a\|_8_bit\)\?.dir\/.*\.o\): CUDA.*/\1/p')
    if [ $# -gt 0 ]; then
        objects=
        for source; do objects="$objects CMakeFiles/coeus_cuda.dir/src/$source.cu.o"; done
    fi
    start=$(date +%s)
    if ninja -C "$folder" --quiet -k 0 $objects; then
        echo "CUDA $version: $(echo $objects | wc -w) files for$(echo "$chosen" | sed 's/;/ sm_/g; s/-real//g')" \
            "($(($(date +%s) - start)) s)"
    else
        failed="$failed 'CUDA $version'"
    fi
}

mkdir -p build-cuda-matrix
for toolkit; do
    option=-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc
    [ -x "$toolkit/bin/nvcc" ] || option=-DCOEUS_CUDA_PYTHON=$toolkit
    compile "$(echo "$toolkit" | tr -c 'A-Za-z0-9.\n' _)" "$option" $interfaces
done
compile default -DCOEUS_CUDA=ON
[ -z "$failed" ] || { echo "compile_matrix.sh: failed:$failed" >&2; exit 1; }
