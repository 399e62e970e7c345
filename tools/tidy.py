#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the sources that a build folder compiles (tidy.py FOLDER [start of a path ...]), all cores.

Most of its time goes to the headers of the libraries, so files of one folder with the same options are looked at
together: their texts, one after the other, are one file, which every check takes for the main one. Files that do not
compile together are looked at alone.
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
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sources

TIDY = os.environ.get("CLANG_TIDY", "clang-tidy-14")
CONFIG = sources.ROOT / ".clang-tidy"
OWN_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
MOST_TOGETHER = 12
DOES_NOT_COMPILE = "[clang-diagnostic-error]"
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


def sources_of(entry, build):
    """The files of ours that an entry of compile_commands.json compiles: one, or those of a batch."""
    path = Path(entry["file"])
    if path.is_relative_to(build) and path.parent.name == "Unity":
        found = [Path(name) for name in OWN_INCLUDE.findall(path.read_text())]
    else:
        found = [path]
    return [p.resolve() for p in found
            if p.is_relative_to(sources.ROOT) and not p.is_relative_to(build) and p.exists()]


def groups(work, most=MOST_TOGETHER):
    """(path, arguments, ...) items in lists of at most `most`, each of one folder of src and of the same options."""
    alike = {}
    for item in work:
        alike.setdefault((item[0].relative_to(sources.ROOT).parts[:2], tuple(item[1])), []).append(item)
    parts = []
    for items in alike.values():
        count = -(-len(items) // most)
        parts += [items[i::count] for i in range(count)]
    return sorted(parts, key=lambda part: -sum(item[0].stat().st_size for item in part))


def joined(paths):
    """The files' texts one after the other, includes beside them by their whole path; and (path, line) of each line."""
    lines, places = [], []
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = OWN_INCLUDE.match(line)
            if match and (path.parent / match.group(1)).is_file():
                line = f'#include "{(path.parent / match.group(1)).resolve()}"'
            lines.append(line)
            places.append((path, number))
    return "\n".join(lines) + "\n", places


def run_tidy(path, arguments, places=None):
    """Findings of one file, as (path, line, what). `places`: what its lines are in truth."""
    done = subprocess.run([TIDY, "--quiet", f"--config-file={CONFIG}", str(path), "--", *arguments], capture_output=True, text=True)
    found = set()
    for line in done.stdout.splitlines():
        match = FINDING.match(line)
        if match:
            place, number = Path(match.group(1)), int(match.group(2))
            if places and place == path:
                place, number = places[number - 1]
            found.add((place, number, match.group(3)))
    if done.returncode != 0 and not found:
        found.add((path, 1, f"clang-tidy failed: {done.stderr.strip()[:400]}"))
    return found


def tidy(paths, arguments):
    """Findings of files, together if that compiles."""
    if len(paths) > 1:
        text, places = joined(paths)
        with tempfile.TemporaryDirectory() as folder:
            together = Path(folder) / "together.cpp"
            together.write_text(text)
            found = run_tidy(together, arguments, places)
        if not any(what.endswith(DOES_NOT_COMPILE) or place == together for place, _, what in found):
            return found
    return set().union(*(run_tidy(path, arguments) for path in paths))


def text_of(finding):
    place, number, what = finding
    shown = place.relative_to(sources.ROOT) if place.is_relative_to(sources.ROOT) else place
    return f"{shown}:{number}: {what}"


def main():
    build = (sources.ROOT / sys.argv[1]).resolve()
    wanted = sys.argv[2:]
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True).stdout
    salt = (version + CONFIG.read_text()).encode()
    clean = build / "tidy-clean"
    clean.mkdir(exist_ok=True)
    extra = compiler_headers()

    work = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        arguments = options(entry["command"]) + extra
        for path in sources_of(entry, build):
            if not wanted or str(path.relative_to(sources.ROOT)).startswith(tuple(wanted)):
                key = clean / key_of(path, arguments, salt)
                work[key] = (path, arguments, key)
    new = [item for item in work.values() if not item[2].exists()]

    found = set()
    parts = groups(new)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        looked_at = pool.map(lambda part: tidy([item[0] for item in part], part[0][1]), parts)
        for part, findings in zip(parts, looked_at):
            found |= findings
            blamed = {place for place, _, _ in findings}
            for path, _, key in part:
                # a finding in a header is one of all that were looked at with it
                if not blamed or (blamed <= {item[0] for item in part} and path not in blamed):
                    key.touch()
    return sources.report(sorted(text_of(finding) for finding in found),
                          f"{len(work)} files, {len(work) - len(new)} of them unchanged: clang-tidy")


if __name__ == "__main__":
    sys.exit(main())
