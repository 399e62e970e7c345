#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles alone: one -fsyntax-only run of the compiler per header, all cores."""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import sources


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
    headers = [p for p in sources.code() if p.parts[0] == "include"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [finding for findings in pool.map(compile_alone, headers) for finding in findings]
    return sources.report(found, f"{len(headers)} headers compile alone")


if __name__ == "__main__":
    sys.exit(main())
