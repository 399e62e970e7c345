#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the layers: a folder includes only itself and the folders that cmake/libraries.cmake lets it use, and it includes
each folder that is named there after its USES. A folder of LIGHT reaches only what is listed there. A heavy third-party
header is included only by .cpp files and private headers of the folder it belongs to."""
import os
import re
import sys
from pathlib import Path

import sources

# start of the header's name -> the folders of src that may include it
HOME = {
    "mpi.h": ("comm",),
    "nccl.h": ("comm",),
    "hdf5": ("hdf5",),
    "H5": ("hdf5",),
    "nlohmann/": ("file",),
    "toml++/": ("file",),
    "xxhash": ("file",),
    "zlib": ("file",),
    "zstd": ("file",),
    "boost/": ("base", "config", "metrics"),
    "oneapi/dnnl": ("kernels",),
    "dnnl": ("kernels",),
    "cblas": ("kernels",),
    "spdlog/": ("base",),
    "hwloc": ("device",),
    "cuda_runtime": ("device", "kernels"),
    "pcre2": ("base", "data"),
    "utf8proc": ("data",),
    "sentencepiece": ("data",),
    "arrow/": ("data",),
    "parquet/": ("data",),
}
# folder -> all that it may use, also through others: the deck, and what only reports, are linked without kernels
BELOW_CONFIG = {"deck_names", "comm", "device", "file", "base"}
LIGHT = {
    "deck_names": set(),
    "config": BELOW_CONFIG,
    "watchdog": BELOW_CONFIG | {"config"},
    "metrics": BELOW_CONFIG | {"config"},
    "report": BELOW_CONFIG | {"config", "metrics"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def includes(text):
    """(line, quote, name) of each include."""
    return [(text.count("\n", 0, m.start(2)) + 1, m.group(1), m.group(2)) for m in INCLUDE.finditer(text)]


def folder_of(path):
    """The library that a file belongs to, or None for tests, benchmarks and examples."""
    parts = path.parts
    if parts[0] == "src":
        return parts[1]
    return parts[2] if parts[:2] == ("include", "coeus") and len(parts) > 3 else None


def check(path, text, allowed, private_headers):
    """Findings of one file. `private_headers`: the headers under src, by path."""
    folder = folder_of(path)
    found = []
    for line, quote, name in includes(text):
        place = f"{path}:{line}"
        if name.startswith("coeus/"):
            target = Path(name).parts[1]
            if folder and target not in allowed.get(folder, {folder}):
                found.append(f"{place}: {folder} must not include {target} ({name})")
            continue
        if quote == '"' and folder:
            near = [Path(os.path.normpath(p)) for p in (path.parent / name, Path("src", folder, name))]
            if path.parts[0] == "include":
                found.append(f'{place}: a public header must include by "coeus/<folder>/..." ({name})')
            elif not any(p in private_headers and folder_of(p) == folder for p in near):
                found.append(f"{place}: not a private header of {folder} ({name})")
            continue
        homes = next((folders for start, folders in HOME.items() if name.startswith(start)), None)
        if homes and folder and folder not in homes:
            found.append(f"{place}: <{name}> may only be included in {' and '.join(homes)}")
        elif homes and path.parts[0] == "include":
            found.append(f"{place}: <{name}> in a public header; include it in the .cpp")
    return found


def unused(uses, code):
    """The entries of USES that no file of their folder includes. `code`: (path, text) of each file."""
    included = {folder: set() for folder in uses}
    for path, text in code:
        if (folder := folder_of(path)) in included:
            included[folder] |= {Path(name).parts[1] for _, _, name in includes(text) if name.startswith("coeus/")}
    return [f"cmake/libraries.cmake: {folder} uses {used}, but no file of {folder} includes it"
            for folder, listed in uses.items() for used in listed if used not in included[folder]]


def heavy(allowed, light):
    """What the folders of `light` reach and may not. `allowed`: as sources.layers()."""
    return [f"cmake/libraries.cmake: {folder} reaches {used}; it may use only {', '.join(sorted(may)) or 'itself'}"
            for folder, may in light.items() for used in sorted(allowed[folder] - may - {folder})]


def main():
    allowed = sources.layers()
    code = sources.code()
    private_headers = {p for p in code if p.parts[0] == "src" and p.suffix in (".hpp", ".cuh")}
    texts = [(path, (sources.ROOT / path).read_text()) for path in code]
    found = unused(sources.uses(), texts) + heavy(allowed, LIGHT)
    for path, text in texts:
        found += check(path, text, allowed, private_headers)
    return sources.report(found, f"{len(code)} files: layers of includes, places of heavy headers")


if __name__ == "__main__":
    sys.exit(main())
