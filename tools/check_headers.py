#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each public header compiles alone, with -fsyntax-only, on all cores. The headers of other libraries would
take nine tenths of the time: they are precompiled and included first. One run checks a chain of headers, each of which
includes the ones before it, so that these add nothing that it does not include itself.
COEUS_HEADERS=FILE compiles only the headers whose paths are lines of this file, such as include/coeus/base/text.hpp.
tools/check_uses.py reports which of them a file lacks."""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sources

QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
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


def chosen(texts):
    """The headers to compile: all, or those that the file COEUS_HEADERS names."""
    file = os.environ.get("COEUS_HEADERS")
    if not file:
        return set(texts)
    paths = {Path(line) for line in Path(file).read_text().splitlines() if line}
    if unknown := sorted(map(str, paths - set(texts))):
        sys.exit(f"{file} names what is not a public header: {', '.join(unknown)}")
    return paths


def inclusions(texts):
    """{path: the headers that it includes, directly or not}"""
    def add_included(path, seen):
        for name in QUOTED.findall(texts[path]):
            other = Path("include") / name
            if other in texts and other not in seen:
                seen.add(other)
                add_included(other, seen)
        return seen
    return {path: add_included(path, set()) for path in texts}


def chains(included, wanted):
    """The wanted headers, by path, in lists in which each header includes the ones before it, directly or not."""
    left, found = sorted(wanted, key=lambda path: (-len(included[path]), path)), []
    while left:
        chain = []
        for path in left:
            if not chain or path in included[chain[-1]]:
                chain.append(path)
        left = [path for path in left if path not in chain]
        found.append(chain[::-1])
    return found


def compile_chain(paths, before):
    """Findings of the headers of a chain: the first error of the compiler."""
    done = run("c++", "-fsyntax-only", "-include", before, *(word for path in paths for word in ("-include", path)),
               os.devnull)
    if done.returncode == 0:
        return []
    if len(paths) > 1 and (found := [finding for path in paths for finding in compile_chain([path], before)]):
        return found
    path = paths[-1]
    errors = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines()
    return [f"{path}: does not compile alone: {errors[0] if errors else 'no message'}"]


def main():
    headers = [path for path in sources.code() if path.parts[0] == "include"]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = {path: (sources.ROOT / path).read_text() for path in headers}
        wanted = chosen(texts)
        if not wanted:
            return sources.report([], f"none of {len(headers)} headers was to be compiled")
        included = inclusions(texts)
        before = precompiled([texts[path] for path in wanted.union(*(included[path] for path in wanted))], folder)
        found = [finding for findings in pool.map(lambda chain: compile_chain(chain, before), chains(included, wanted))
                 for finding in findings]
    return sources.report(found, f"{len(wanted)} of {len(headers)} headers compile alone")


if __name__ == "__main__":
    sys.exit(main())
