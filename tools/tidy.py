#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the sources that a build folder compiles (tidy.py FOLDER [start of a path ...]), on all cores.

Most of the time goes into headers of libraries. Therefore files of one folder with the same options are checked
together: their texts are joined into one file, so that every check treats all of them as the main file. Files that do
not compile together are checked separately.
A file that was clean is not checked again as long as its text, our headers that it includes, the options and the checks
are unchanged: a folder has a file for its key, which is the same in every clone. It is the user's (tools/caches.py) or,
without one, FOLDER/tidy-clean. In .ci/run (COEUS_REACH), only files that the change reaches are checked, and those of
one of FOLDERS_DRAWN other folders, drawn by the seed. Only compiler options that clang 14 knows are passed on.
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

import caches
import reach
import sources

TIDY = os.environ.get("CLANG_TIDY", "clang-tidy-14")
CONFIG = sources.ROOT / ".clang-tidy"
OWN_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
MOST_TOGETHER = 40
FEWER_TOGETHER = 12  # if so many do not compile together
FOLDERS_DRAWN = 5
DOES_NOT_COMPILE = "[clang-diagnostic-error]"
FINDING = re.compile(r"^(\S+?):(\d+):\d+: (?:warning|error): (.*)$")


def options(command):
    """The options that change the meaning of a file: include folders, macros, language."""
    words, kept = shlex.split(command), []
    for i, word in enumerate(words):
        if word in ("-isystem", "-include", "-x"):  # "-x c++" is for kernels that are tested on the CPU
            kept += [word, words[i + 1]]
        elif word.startswith(("-I", "-D", "-std=", "-march=", "-fopenmp")):
            kept.append(word)
    return kept + ["-Wno-unknown-warning-option", "-include", str(sources.ROOT / "tools/clang_shim.hpp")]


def compiler_headers():
    """The compiler's own folder of headers, for <omp.h>: clang 14 has it only in its OpenMP package."""
    path = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True).stdout.strip()
    return ["-idirafter", path] if path else []


def own_headers(path, include_folders, seen):
    """Adds to `seen` the file and all of our headers that it includes, directly or not."""
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
    # paths as in every clone
    digest = hashlib.sha256(salt + "\0".join(arguments).replace(str(sources.ROOT), ".").encode())
    for header in sorted(seen):
        name = os.path.relpath(header, sources.ROOT)
        digest.update(name.encode() + b"\0" + header.read_bytes())
    return digest.hexdigest()


def meaning_of_native():
    """The options that the compiler takes for -march=native, which are others on another processor."""
    return subprocess.run(["g++", "-march=native", "-###", "-E", "-x", "c++", "/dev/null"], capture_output=True,
                          cwd="/").stderr


def sources_of(entry, build):
    """Our files that an entry of compile_commands.json compiles: one file, or those of a batch."""
    path = Path(entry["file"])
    if path.is_relative_to(build) and path.parent.name == "Unity":
        found = [Path(name) for name in OWN_INCLUDE.findall(path.read_text())]
    else:
        found = [path]
    return [p.resolve() for p in found
            if p.is_relative_to(sources.ROOT) and not p.is_relative_to(build) and p.exists()]


def groups(work, most=MOST_TOGETHER):
    """Lists of at most `most` items (path, arguments, ...), each with files of one folder of src and the same options."""
    alike = {}
    for item in work:
        alike.setdefault((item[0].relative_to(sources.ROOT).parts[:2], tuple(item[1])), []).append(item)
    parts = []
    for items in alike.values():
        count = -(-len(items) // most)
        parts += [items[i::count] for i in range(count)]
    return sorted(parts, key=lambda part: -sum(item[0].stat().st_size for item in part))


def joined(paths):
    """The joined texts of the files, with full paths for includes of files next to them; and (path, line) of each line."""
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
    """Findings of one file, as (path, line, what). `places`: (path, line) of the original of each line."""
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


def is_wanted(path):
    """Whether the change reaches a file, or the seed draws its folder."""
    reached = reach.reached_sources()
    name = path.relative_to(sources.ROOT)
    return reached is None or str(name) in reached or reach.draws(str(name.parent), reach.seed(), FOLDERS_DRAWN)


def tidy(paths, arguments):
    """Findings of files, checked together if that compiles, otherwise in smaller parts."""
    if len(paths) > 1:
        text, places = joined(paths)
        with tempfile.TemporaryDirectory() as folder:
            together = Path(folder) / "together.cpp"
            together.write_text(text)
            found = run_tidy(together, arguments, places)
        if not any(what.endswith(DOES_NOT_COMPILE) or place == together for place, _, what in found):
            return found
        count = -(-len(paths) // FEWER_TOGETHER)
        parts = [paths[i::count] for i in range(count)] if count > 1 else [[path] for path in paths]
        return set().union(*(tidy(part, arguments) for part in parts))
    return run_tidy(paths[0], arguments)


def text_of(finding):
    place, number, what = finding
    shown = place.relative_to(sources.ROOT) if place.is_relative_to(sources.ROOT) else place
    return f"{shown}:{number}: {what}"


def main():
    build = (sources.ROOT / sys.argv[1]).resolve()
    wanted = sys.argv[2:]
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True).stdout
    salt = (version + CONFIG.read_text()).encode() + meaning_of_native()
    clean = caches.folder("tidy")
    if clean:
        caches.remove_unused(clean, days=30)
    else:
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
    unknown = [item for item in work.values() if not item[2].exists()]
    new = [item for item in unknown if is_wanted(item[0])]
    for key in set(work) - {item[2] for item in unknown}:
        caches.touch(key)

    found = set()
    parts = groups(new)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        looked_at = pool.map(lambda part: tidy([item[0] for item in part], part[0][1]), parts)
        for part, findings in zip(parts, looked_at):
            found |= findings
            blamed = {place for place, _, _ in findings}
            for path, _, key in part:
                # a finding in a header belongs to all files that were checked together
                if not blamed or (blamed <= {item[0] for item in part} and path not in blamed):
                    caches.touch(key)
    return sources.report(sorted(text_of(finding) for finding in found),
                          f"{len(work)} files, {len(work) - len(unknown)} of them unchanged, "
                          f"{len(unknown) - len(new)} neither reached nor drawn: clang-tidy")


if __name__ == "__main__":
    sys.exit(main())
