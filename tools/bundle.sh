#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The second half of `make bundle`, after the build: bundle.sh BUILD_FOLDER [PROGRAM ...] makes the folder
# BUILD_FOLDER/coeus-VERSION-cuda and packs it as .tar.zst. It contains coeus, Open MPI, the libraries of both, the
# decks, each PROGRAM, and the scripts for GPUs that start these programs. It can be unpacked anywhere. glibc, NVIDIA's
# driver and CUDA's libraries are not in it: the machine must have them.
# bundle.sh --check: tells whether a bundle can be made with this machine's MPI.
set -eu
cd "$(dirname "$0")/.."
if [ "$(uname -m)" != x86_64 ]; then
    echo "make bundle: a bundle is for x86-64, but this machine is $(uname -m). Build Coeus here with \`make cuda\`" >&2
    exit 2
fi
if [ "${COEUS_MPI:-openmpi}" != openmpi ]; then
    echo "make bundle: a bundle starts its ranks with Open MPI 4, but COEUS_MPI = $COEUS_MPI" >&2
    exit 2
fi
if ! command -v orterun >/dev/null || ! command -v orted >/dev/null; then
    echo "make bundle: a bundle starts its ranks with Open MPI 4 (orterun, orted), but this machine's mpirun is" \
        "$(mpirun --version 2>&1 | head -n 1). Make the bundle on Debian 12: it runs on newer systems too." >&2
    exit 2
fi
[ "$1" != --check ] || exit 0
build=$1
shift

version=$("$build/coeus" --version | cut -d ' ' -f 2)
name=coeus-$version-cuda
bundle=$build/$name
rm -rf "$bundle" "$bundle.tar.zst"
mkdir -p "$bundle/bin" "$bundle/lib/openmpi" "$bundle/share" "$bundle/etc"

cp "$build/coeus" "$bundle/bin/"
for program in "$@"; do cp "$program" "$bundle/bin/"; done
cp "$(command -v orterun)" "$bundle/bin/mpirun"
cp "$(command -v orted)" "$bundle/bin/"

# Open MPI loads these plugins itself. Those for shared memory and TCP are copied; those for fast networks are not,
# since a cluster has its own MPI
plugins=$(ompi_info --parsable --path pkglibdir | cut -d : -f 3)
for plugin in "$plugins"/mca_*.so; do
    case ${plugin##*/} in *_ofi.so | *_openib.so | *_psm*.so | *_ucx.so | *_usnic.so | *_monitoring.so) ;;
        *) cp -L "$plugin" "$bundle/lib/openmpi/" ;; esac
done
cp -rL "$(ompi_info --parsable --path pkgdatadir | cut -d : -f 3)" "$bundle/share/openmpi"
touch "$bundle/etc/openmpi-mca-params.conf"

# every library that these files need, except for glibc's and NVIDIA's
for file in "$bundle"/bin/* "$bundle"/lib/openmpi/*.so; do ldd "$file"; done |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    while read -r library; do
        case ${library##*/} in
            ld-linux* | libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libresolv.so* | libutil.so*) ;;
            libcuda* | libcublas* | libcudnn* | libnccl* | libnv*) ;;
            *) cp -L "$library" "$bundle/lib/" ;;
        esac
    done
strip --strip-unneeded "$bundle"/bin/* "$bundle"/lib/*.so* "$bundle"/lib/openmpi/*.so

cp -r inputs jobscripts "$bundle/"
cp tests/gpu/run.sh "$bundle/gpu-tests.sh"
cp tests/gpu/first_hour.sh "$bundle/first-hour.sh"
mkdir "$bundle/bench"
cp bench/gpu.sh bench/gpu.py bench/torch_llama_cuda.py "$bundle/bench/"
cp LICENSE CHANGELOG.md "$bundle/"

cat >"$bundle/run" <<'END'
#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts a program of the bundle: the one by whose name this file is called (coeus, mpirun), or PROGRAM of
# `run PROGRAM ...`. The program gets the bundle's libraries, and CUDA's libraries from COEUS_CUDA_PYTHON, VIRTUAL_ENV,
# CUDA_HOME, /usr/local/cuda or the environment of python3.
here=$(CDPATH= cd "$(dirname "$0")" && pwd -P)
program=${0##*/}
[ "$program" != run ] || { program=$1; shift; }
libraries=$here/lib
python=$(command -v python3 || echo /nowhere/bin/python3)
for folder in "${COEUS_CUDA_PYTHON:-/nowhere}"/lib/python3*/site-packages/nvidia/*/lib \
    "${VIRTUAL_ENV:-/nowhere}"/lib/python3*/site-packages/nvidia/*/lib \
    "${CUDA_HOME:-/nowhere}/lib64" /usr/local/cuda/lib64 \
    "${python%/bin/python3}"/lib/python3*/site-packages/nvidia/*/lib; do
    [ ! -d "$folder" ] || libraries=$libraries:$folder
done
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# the loader's own message would not say how to help
missing=$(ldd "$here/bin/$program" 2>/dev/null | sed -n 's/^[[:space:]]*\(lib[^ ]*\) => not found.*/\1/p' | tr '\n' ' ')
if [ -n "$missing" ]; then
    echo "$program: these libraries of CUDA were not found: $missing(set CUDA_HOME, or COEUS_CUDA_PYTHON to a Python environment" \
        "with the nvidia packages)" >&2
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
END
chmod +x "$bundle/run"
ln -s run "$bundle/coeus"
ln -s run "$bundle/mpirun"

cat >"$bundle/README" <<END
Coeus $version for NVIDIA GPUs. It needs glibc 2.36 (Debian 12) or newer and an x86-64 CPU with AVX2. To use GPUs it needs
NVIDIA's driver and CUDA's libraries, from /usr/local/cuda, from CUDA_HOME, or from the nvidia packages of a Python environment
(COEUS_CUDA_PYTHON, VIRTUAL_ENV, or the environment of python3).
    ./coeus --version
    ./coeus train inputs/llama3_debug.toml --dry_run        ./mpirun -n 2 ./coeus train DECK
    ./gpu-tests.sh                                          every test that needs a GPU, on one GPU (8 minutes)
    bench/gpu.sh                                            training speed, compared with PyTorch if python3 has it (8 minutes)
    ./first-hour.sh                                         all of this and more on all GPUs, with a report to send back (55 minutes)
Its Open MPI uses shared memory and TCP. "./run PROGRAM" starts any program of bin/ with the libraries of the bundle.
END

tar -C "$build" -cf - "$name" | zstd -q -12 -T0 -o "$bundle.tar.zst"
echo "$bundle.tar.zst: $(($(wc -c <"$bundle.tar.zst") / 1000000)) MB, $(du -sm "$bundle" | cut -f 1) MiB unpacked"
