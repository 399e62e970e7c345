#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make bundle` does after the build: bundle.sh BUILD_FOLDER [PROGRAM ...] makes BUILD_FOLDER/coeus-VERSION-cuda and
# the same as .tar.zst: the program, Open MPI, the libraries of both, decks, and the test programs named, to be
# unpacked anywhere. glibc, NVIDIA's driver and CUDA's libraries are the machine's.
set -eu
cd "$(dirname "$0")/.."
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

# Open MPI loads these by itself: shared memory and TCP, without the fabrics' (a cluster has an MPI of its own)
plugins=$(ompi_info --parsable --path pkglibdir | cut -d : -f 3)
for plugin in "$plugins"/mca_*.so; do
    case ${plugin##*/} in *_ofi.so | *_openib.so | *_psm*.so | *_ucx.so | *_usnic.so | *_monitoring.so) ;;
        *) cp -L "$plugin" "$bundle/lib/openmpi/" ;; esac
done
cp -rL "$(ompi_info --parsable --path pkgdatadir | cut -d : -f 3)" "$bundle/share/openmpi"
touch "$bundle/etc/openmpi-mca-params.conf"

# every library of those that is neither glibc's nor NVIDIA's
for file in "$bundle"/bin/* "$bundle"/lib/openmpi/*.so; do ldd "$file"; done |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    while read -r library; do
        case ${library##*/} in
            ld-linux* | libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libresolv.so* | libutil.so*) ;;
            libcuda* | libcudart* | libcublas* | libcudnn* | libnccl* | libnv*) ;;
            *) cp -L "$library" "$bundle/lib/" ;;
        esac
    done
strip --strip-unneeded "$bundle"/bin/* "$bundle"/lib/*.so* "$bundle"/lib/openmpi/*.so

cp -r inputs "$bundle/inputs"
for folder in tests/gpu; do
    if [ -d "$folder" ]; then mkdir -p "$bundle/tests" && cp -r "$folder" "$bundle/tests/"; fi
done
for script in bench/gpu*; do
    if [ -e "$script" ]; then mkdir -p "$bundle/bench" && cp -r "$script" "$bundle/bench/"; fi
done
cp LICENSE CHANGELOG.md "$bundle/"

cat >"$bundle/run" <<'END'
#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts a program of the bundle, by the name under which this file is called (coeus, mpirun), or `run PROGRAM ...`:
# with the bundle's libraries, and CUDA's of COEUS_CUDA_PYTHON, VIRTUAL_ENV, CUDA_HOME or /usr/local/cuda.
here=$(CDPATH= cd "$(dirname "$0")" && pwd -P)
program=${0##*/}
[ "$program" != run ] || { program=$1; shift; }
libraries=$here/lib
for folder in "${COEUS_CUDA_PYTHON:-/nowhere}"/lib/python3*/site-packages/nvidia/*/lib \
    "${VIRTUAL_ENV:-/nowhere}"/lib/python3*/site-packages/nvidia/*/lib \
    "${CUDA_HOME:-/nowhere}/lib64" /usr/local/cuda/lib64; do
    [ ! -d "$folder" ] || libraries=$libraries:$folder
done
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPAL_PREFIX="$here" OPAL_BINDIR="$here/bin" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/lib/openmpi"
export OPAL_PKGDATADIR="$here/share/openmpi" OPAL_SYSCONFDIR="$here/etc"
# one machine, and Open MPI would not start without ssh
command -v ssh >/dev/null || export OMPI_MCA_plm=isolated
exec "$here/bin/$program" "$@"
END
chmod +x "$bundle/run"
ln -s run "$bundle/coeus"
ln -s run "$bundle/mpirun"

cat >"$bundle/README" <<END
Coeus $version for NVIDIA GPUs. Needs glibc as of Debian 12 (2.36) or newer, an x86-64 CPU with AVX2, and for GPUs NVIDIA's
driver and CUDA's libraries: /usr/local/cuda, CUDA_HOME, or a Python environment's nvidia packages (VIRTUAL_ENV, COEUS_CUDA_PYTHON).
    ./coeus --version
    ./coeus train inputs/llama3_debug.toml --dry_run        ./mpirun -n 2 ./coeus train DECK
Its Open MPI speaks shared memory and TCP. "./run PROGRAM" starts any program of bin/ with the libraries of the bundle.
END

tar -C "$build" -cf - "$name" | zstd -q -12 -T0 -o "$bundle.tar.zst"
echo "$bundle.tar.zst: $(($(wc -c <"$bundle.tar.zst") / 1000000)) MB, $(du -sm "$bundle" | cut -f 1) MiB unpacked"
