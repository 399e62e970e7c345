#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the sources that a build folder compiles (tidy.py FOLDER [start of a path ...]), all cores.

A file whose text, own headers, options and checks are unchanged since it was clean is not looked at again: its key is
a file of FOLDER/tidy-clean. The compiler's options are cut down to those that clang 14 knows as well.
"""
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sources

TIDY = os.environ.get("CLANG_TIDY", "clang-tidy-14")
OWN_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FINDING = re.compile(r"^(\S+?):(\d+):\d+: (?:warning|error): (.*)$")


def options(command):
    """The options that decide what a file means: include folders, macros, language."""
    words, kept = shlex.split(command), []
    for i, word in enumerate(words):
        if word in ("-isystem", "-include", "-x"):  # "-x c++": kernels that are tested on the CPU
            kept += [word, words[i + 1]]
        elif word.startswith(("-I", "-D", "-std=", "-march=", "-fopenmp")):
            kept.append(word)
    return kept + ["-Wno-unknown-warning-option", "-include", str(sources.ROOT / "tools/clang_shim.hpp")]


def compiler_headers():
    """The compiler's own folder of headers, for <omp.h>, which clang 14 brings only with its OpenMP package."""
    path = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True).stdout.strip()
    return ["-idirafter", path] if path else []


def own_headers(path, include_folders, seen):
    """Adds to `seen` the file and every header of ours that it includes, however deep."""
    if path in seen:
        return
    seen.add(path)
    for name in OWN_INCLUDE.findall(path.read_text()):
        for folder in [path.parent, *include_folders]:
            if (folder / name).is_file():
                own_headers((folder / name).resolve(), include_folders, seen)
                break


def key_of(path, arguments, salt):
    folders = [Path(a[2:]) for a in arguments if a.startswith("-I")]
    seen = set()
    own_headers(path, folders, seen)
    digest = hashlib.sha256(salt + "\0".join(arguments).encode())
    for header in sorted(seen):
        digest.update(str(header).encode() + b"\0" + header.read_bytes())
    return digest.hexdigest()


def tidy(path, arguments):
    """Findings of one file, as "path:line: what"."""
    done = subprocess.run([TIDY, "--quiet", str(path), "--", *arguments], capture_output=True, text=True)
    found = []
    for line in done.stdout.splitlines():
        match = FINDING.match(line)
        if match:
            place = Path(match.group(1))
            shown = place.relative_to(sources.ROOT) if place.is_relative_to(sources.ROOT) else place
            found.append(f"{shown}:{match.group(2)}: {match.group(3)}")
    if done.returncode != 0 and not found:
        found.append(f"{path.relative_to(sources.ROOT)}:1: clang-tidy failed: {done.stderr.strip()[:400]}")
    return found


def main():
    build = (sources.ROOT / sys.argv[1]).resolve()
    wanted = sys.argv[2:]
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True).stdout
    salt = (version + (sources.ROOT / ".clang-tidy").read_text()).encode()
    clean = build / "tidy-clean"
    clean.mkdir(exist_ok=True)
    extra = compiler_headers()

    work = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["file"]).resolve()
        if not path.is_relative_to(sources.ROOT) or path.is_relative_to(build) or not path.exists():
            continue
        if wanted and not str(path.relative_to(sources.ROOT)).startswith(tuple(wanted)):
            continue
        arguments = options(entry["command"]) + extra
        work.append((path, arguments, clean / key_of(path, arguments, salt)))
    new = [item for item in work if not item[2].exists()]

    found = set()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (path, _, key), findings in zip(new, pool.map(lambda item: tidy(*item[:2]), new)):
            found.update(findings)
            if not findings:
                key.touch()
    return sources.report(sorted(found), f"{len(work)} files, {len(work) - len(new)} of them unchanged: clang-tidy")


if __name__ == "__main__":
    sys.exit(main())
