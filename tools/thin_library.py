#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a library with CUDA kernels small enough to carry to a machine with a GPU.

    thin_library.py LIBRARY ARCHITECTURE PACKED.zst     such as libnccl.so.2 90 libnccl.so.2.zst

LIBRARY is a shared library, or a Python package (.whl) that contains one. Each fat binary in it keeps only its kernels for
ARCHITECTURE (90 for sm_90 and sm_90a): those for others are replaced by zeros, so that the file keeps its length and every
address. A fat binary without kernels for ARCHITECTURE stays as it is, since the driver may need it whole. The
result is packed by zstd; `zstd -d PACKED.zst` unpacks it."""
import fnmatch
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)
HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of all entries
ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, bytes of its header, bytes of its payload, ..., architecture


def entries(image, begin):
    """The entries of the fat binary at an offset: (architecture, first byte, end) of each payload; None if the bytes there
    are not a fat binary."""
    if begin + HEADER.size > len(image):
        return None
    _, _, header, size = HEADER.unpack_from(image, begin)
    at, end = begin + header, begin + header + size
    if header < HEADER.size or end > len(image):
        return None
    found = []
    while at < end:
        if at + ENTRY.size > end:
            return None
        _, _, entry_header, payload, architecture = ENTRY.unpack_from(image, at)
        first = at + entry_header
        if entry_header < ENTRY.size or first + payload > end:
            return None
        found.append((architecture, first, first + payload))
        at = first + payload
    return found


def thin(image, architecture):
    """Zeroes the payloads for other architectures in a bytearray. Returns the number of fat binaries, and the bytes of
    kernels for this architecture and of those removed."""
    fat = kept = removed = 0
    at = image.find(MAGIC)
    while at >= 0:
        found = entries(image, at)
        next_at = at + len(MAGIC)
        if found is not None:
            fat += 1
            has_own = any(of == architecture for of, _, _ in found)
            for of, first, end in found:
                next_at = end
                if of == architecture:
                    kept += end - first
                elif has_own:
                    removed += end - first
                    image[first:end] = bytes(end - first)
        at = image.find(MAGIC, next_at)
    return fat, kept, removed


def read(path):
    """The library itself, or the one inside a package."""
    if path.suffix != ".whl":
        return bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as package:
        names = fnmatch.filter(package.namelist(), "*/lib*.so*")
        if len(names) != 1:
            raise SystemExit(f"{path} has {len(names)} libraries, but one is expected: {' '.join(names)}")
        return bytearray(package.read(names[0]))


def main(arguments):
    if len(arguments) != 3 or not arguments[1].isdigit():
        raise SystemExit("usage: thin_library.py LIBRARY ARCHITECTURE PACKED.zst, such as libnccl.so.2 90 libnccl.so.2.zst")
    library, architecture, packed = Path(arguments[0]), int(arguments[1]), Path(arguments[2])
    image = read(library)
    fat, kept, removed = thin(image, architecture)
    if kept == 0:
        raise SystemExit(f"{library} has no kernels for sm_{architecture} in its {fat} fat binaries: nothing was written")
    try:
        subprocess.run(["zstd", "-q", "-T0", "-9", "-f", "-o", packed], input=image, check=True)
    except FileNotFoundError:
        raise SystemExit("there is no zstd: install the package zstd") from None
    mib = 1 / (1 << 20)
    print(f"{packed}: {packed.stat().st_size * mib:.1f} MiB, of {len(image) * mib:.1f} MiB with {fat} fat binaries; "
          f"{kept * mib:.1f} MiB of kernels for sm_{architecture}, {removed * mib:.1f} MiB removed")


if __name__ == "__main__":
    main(sys.argv[1:])
