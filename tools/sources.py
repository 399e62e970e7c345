# SPDX-License-Identifier: Apache-2.0
"""Shared by the checks: the repository's files, the folders of the libraries, the report of findings."""
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("include", "src", "tests", "bench", "examples", "tools", "cmake", "jobscripts", ".ci")
ROOT_FILES = ("Makefile", "CMakeLists.txt")
CODE = (".cpp", ".hpp", ".cu", ".cuh")


def files(root=ROOT):
    """Our own text files to which a rule may apply, relative to the root, sorted."""
    found = [Path(name) for name in ROOT_FILES if (root / name).exists()]
    for folder in SOURCE_FOLDERS:
        for place, folders, names in os.walk(root / folder):
            folders[:] = [f for f in folders if f != "__pycache__"]
            found += [(Path(place) / name).relative_to(root) for name in names]
    return sorted(found)


def code(root=ROOT):
    return [path for path in files(root) if path.suffix in CODE]


def uses(root=ROOT):
    """folder -> the folders after its USES in cmake/libraries.cmake."""
    text = (root / "cmake/libraries.cmake").read_text()
    found = {}
    for name, arguments in re.findall(r"^coeus_library\((\w+)([^)]*)\)", text, re.MULTILINE):
        listed = re.search(r"USES([\w\s]*?)(LIBRARIES|$)", arguments)
        found[name] = listed.group(1).split() if listed else []
    return found


def layers(root=ROOT):
    """folder -> the folders that it may include (with itself), from cmake/libraries.cmake. A folder may only use
    folders above it in that file, so there are no cycles."""
    allowed = {}
    for name, listed in uses(root).items():
        below = {name}
        for used in listed:
            if used not in allowed:
                sys.exit(f"cmake/libraries.cmake: {name} uses {used}, which is not below it")
            below |= allowed[used]
        allowed[name] = below
    return allowed


def report(findings, summary):
    """Prints the findings and the summary; returns the exit code."""
    for finding in findings:
        print(finding)
    print(summary + (f": {len(findings)} findings" if findings else ""))
    return 1 if findings else 0
