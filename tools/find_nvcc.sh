#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the path of the nvcc that cmake/cuda.cmake takes, or with --major the first number of its version. If there is
# none, it says so and ends with exit code 1.
for nvcc in "${COEUS_CUDA_PYTHON:-/nowhere}"/lib/python3*/site-packages/nvidia/*/bin/nvcc \
    "${CUDA_HOME:-/nowhere}/bin/nvcc" /usr/local/cuda/bin/nvcc "$(command -v nvcc)" \
    "${VIRTUAL_ENV:-/nowhere}"/lib/python3*/site-packages/nvidia/*/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    [ "${1:-}" != --major ] || nvcc=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    echo "$nvcc"
    exit 0
done
echo "there is no nvcc in CUDA_HOME, /usr/local/cuda, the PATH or a Python environment" >&2
exit 1
