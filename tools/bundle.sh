#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The second half of `make bundle`, after the build: bundle.sh BUILD_FOLDER [PROGRAM ...] makes the folder
# BUILD_FOLDER/coeus-VERSION-cudaMAJOR and packs it as .tar.zst. It contains coeus, Open MPI, the libraries of both, the
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
# any minor version of CUDA's libraries and driver will do (NVIDIA: CUDA Compatibility)
cuda=$(objdump -p "$build/coeus" | sed -n 's/.*NEEDED *libcublasLt\.so\.\([0-9]*\)$/\1/p')
case $cuda in
    12) driver=525 ;;
    13) driver=580 ;;
    *)
        echo "make bundle: $build/coeus needs libcublasLt.so.$cuda, but only CUDA 12 and 13 are known" >&2
        exit 2
        ;;
esac
name=coeus-$version-cuda$cuda
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
# the tests' programs read it (tests/support/paths.hpp)
cp "$build/tests/paths.txt" "$bundle/bin/"

cp -r inputs jobscripts "$bundle/"
cp tests/gpu/run.sh "$bundle/gpu-tests.sh"
cp tests/gpu/first_hour.sh "$bundle/first-hour.sh"
mkdir "$bundle/bench"
cp bench/gpu.sh bench/gpu.py bench/kernel_classes.py bench/torch_llama_cuda.py "$bundle/bench/"
cp LICENSE CHANGELOG.md "$bundle/"

sed "s/@cuda@/$cuda/; s/@driver@/$driver/" tools/bundle_run.sh >"$bundle/run"
chmod +x "$bundle/run"
ln -s run "$bundle/coeus"
ln -s run "$bundle/mpirun"

cat >"$bundle/README" <<END
Coeus $version for NVIDIA GPUs. It needs glibc 2.36 (Debian 12) or newer, an x86-64 CPU with AVX2, and the libraries of CUDA
$cuda, from /usr/local/cuda, from CUDA_HOME, or from the nvidia packages of a Python environment (COEUS_CUDA_PYTHON, VIRTUAL_ENV,
or the environment of python3). To use GPUs it needs NVIDIA's driver, $driver or newer.
    ./coeus --version
    ./coeus train inputs/llama3_debug.toml --dry_run        ./mpirun -n 2 ./coeus train DECK
    ./gpu-tests.sh                                          every test that needs a GPU, on one GPU (8 minutes)
    bench/gpu.sh                                            training speed, compared with PyTorch if python3 has it (8 minutes)
    bench/gpu.sh . short                                    the most informative of it, for a command of ten minutes
    ./first-hour.sh                                         all of this and more on all GPUs, with a report to send back (55 minutes)
    ./first-hour.sh . short                                 settings and kernels that have run least, for a command of ten minutes
Its Open MPI uses shared memory and TCP. "./run PROGRAM" starts any program of bin/ with the libraries of the bundle.
END

# the programs contain the same kernels, which a window of 128 MiB (the most that zstd unpacks by itself) finds again
tar -C "$build" -cf - "$name" | zstd -q -12 -T0 --long=27 -o "$bundle.tar.zst"
echo "$bundle.tar.zst: $(($(wc -c <"$bundle.tar.zst") / 1000000)) MB, $(du -sm "$bundle" | cut -f 1) MiB unpacked"
