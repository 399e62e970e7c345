#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts a program of the bundle: the one by whose name this file is called (coeus, mpirun), or PROGRAM of
# `run PROGRAM ...`. The program gets the bundle's libraries, and CUDA's libraries from COEUS_CUDA_PYTHON, VIRTUAL_ENV,
# CUDA_HOME, /usr/local/cuda or the environment of python3. bundle.sh writes the numbers of CUDA and of the driver.
cuda=@cuda@
driver=@driver@
here=$(CDPATH= cd "$(dirname "$0")" && pwd -P)
program=${0##*/}
[ "$program" != run ] || { program=$1; shift; }
libraries=$here/lib
other=
python=$(command -v python3 || echo /nowhere/bin/python3)
for folder in "${COEUS_CUDA_PYTHON:-/nowhere}"/lib/python3*/site-packages/nvidia/*/lib \
    "${VIRTUAL_ENV:-/nowhere}"/lib/python3*/site-packages/nvidia/*/lib \
    "${CUDA_HOME:-/nowhere}/lib64" /usr/local/cuda/lib64 \
    "${python%/bin/python3}"/lib/python3*/site-packages/nvidia/*/lib; do
    [ -d "$folder" ] || continue
    libraries=$libraries:$folder
    found=
    for library in "$folder"/libcublasLt.so.[0-9]*; do
        version=${library##*/libcublasLt.so.}
        case $version in "$cuda" | "$cuda".* | '[0-9]*') ;; *) found="; $folder is CUDA ${version%%.*}" ;; esac
    done
    case $other in *"$found"*) ;; *) other=$other$found ;; esac
done
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# the loader's own message would not say how to help
missing=$(ldd "$here/bin/$program" 2>/dev/null | sed -n 's/^[[:space:]]*\(lib[^ ]*\) => not found.*/\1/p' | tr '\n' ' ')
if [ -n "$missing" ]; then
    found=$(nvidia-smi 2>/dev/null |
        sed -n 's/.*Driver Version: *\([0-9.]*\) .*CUDA Version: *\([0-9.]*\).*/driver \1, CUDA \2/p')
    echo "$program: this bundle needs CUDA $cuda (driver $driver or newer); found ${found:-no driver (nvidia-smi)}$other;" \
        "${missing% } not found. Set CUDA_HOME to a CUDA $cuda, or COEUS_CUDA_PYTHON to a Python environment with its packages" >&2
    exit 3
fi
export OPAL_PREFIX="$here" OPAL_BINDIR="$here/bin" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/lib/openmpi"
export OPAL_PKGDATADIR="$here/share/openmpi" OPAL_SYSCONFDIR="$here/etc"
# PMIx would warn that its plugins for compressed messages are missing; only runs on many hosts need them
export PMIX_MCA_pcompress_base_silence_warning=1
# the system's PMIx may have a plugin for compression that does not fit this one
export PMIX_MCA_pcompress='^zlib'
# the scripts of `coeus sbatch` start this program
[ "$program" != coeus ] || export COEUS="${COEUS:-$here/coeus}"
# without ssh Open MPI would not start, even on one machine
command -v ssh >/dev/null || export OMPI_MCA_plm=isolated
exec "$here/bin/$program" "$@"
