#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles alone. The build proves it of those that a source of src includes before anything else
(most do: style); the others get a -fsyntax-only run of the compiler each, all cores."""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sources

FIRST_DIRECTIVE = re.compile(r'^\s*#\s*(.*)$', re.MULTILINE)
INCLUDE = re.compile(r'include\s*"(coeus/[^"]+)"')


def first_include(text):
    """The public header with which a source begins, or None."""
    directive = FIRST_DIRECTIVE.search(text)
    match = directive and INCLUDE.match(directive.group(1))
    return Path("include", match.group(1)) if match else None


def left_to_check(code, read):
    """The public headers of `code` that no .cpp of src begins with; `read` gives a file's text."""
    built = {first_include(read(p)) for p in code if p.parts[0] == "src" and p.suffix == ".cpp"}
    return [p for p in code if p.parts[0] == "include" and p not in built]


def compile_alone(path):
    """Findings of one header: the first line of what the compiler says."""
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic",
               "-Wshadow", "-Werror", "-fopenmp", "-Iinclude", "-x", "c++", "-include", str(path), os.devnull]
    done = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return []
    errors = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines()
    return [f"{path}: does not compile alone: {errors[0] if errors else 'no message'}"]


def main():
    code = sources.code()
    headers = left_to_check(code, lambda path: (sources.ROOT / path).read_text())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [finding for findings in pool.map(compile_alone, headers) for finding in findings]
    return sources.report(found, f"{len(headers)} headers compile alone, the others in the build")


if __name__ == "__main__":
    sys.exit(main())
