#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each public header compiles alone, with one -fsyntax-only run of the compiler per header, on all cores.
The headers of other libraries would take nine tenths of the time: they are precompiled and included first.
tools/check_uses.py reports which of them a file lacks."""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sources

ANGLED = re.compile(r"^\s*#\s*include\s*(<[^>]+>)", re.MULTILINE)
COMPILER = [os.environ.get("CXX", "g++"), "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-fopenmp",
            "-Iinclude", "-x"]


def run(*arguments):
    return subprocess.run([*COMPILER, *map(str, arguments)], cwd=sources.ROOT, capture_output=True, text=True)


def precompiled(texts, folder):
    """Makes a header that includes all library headers of these texts, and precompiles it; returns its path."""
    header = Path(folder) / "libraries.hpp"
    header.write_text("".join(f"#include {name}\n" for name in sorted({n for text in texts for n in ANGLED.findall(text)})))
    done = run("c++-header", header, "-o", f"{header}.gch")
    if done.returncode != 0:
        sys.exit(f"the libraries' headers do not compile: {done.stderr.strip()[:400]}")
    return header


def compile_alone(path, before):
    """Findings of one header: the first error of the compiler."""
    done = run("c++", "-fsyntax-only", "-include", before, "-include", path, os.devnull)
    if done.returncode == 0:
        return []
    errors = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines()
    return [f"{path}: does not compile alone: {errors[0] if errors else 'no message'}"]


def main():
    headers = [path for path in sources.code() if path.parts[0] == "include"]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        before = precompiled([(sources.ROOT / path).read_text() for path in headers], folder)
        found = [finding for findings in pool.map(lambda path: compile_alone(path, before), headers)
                 for finding in findings]
    return sources.report(found, f"{len(headers)} headers compile alone")


if __name__ == "__main__":
    sys.exit(main())
