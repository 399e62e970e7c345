#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chooses the unit tests that `make sanitize` runs, by the list tests/sanitized.txt and a seed.

    sanitized.py [--seed SEED]     prints a regular expression of the tests that are left out, for ctest
    sanitized.py --check FOLDER    checks with a build folder that each listed test exists, and that something of each
                                   folder of tests/unit runs whatever the seed
"""
import argparse
import hashlib
import re
import subprocess
import sys

import reach
import sources

LIST = sources.ROOT / "tests/sanitized.txt"
USES = ("always", "part", "rest")
LINE = re.compile(r"(\S+) +((unit/\w+):.+)")
ONE_OF = 3  # tests of a part


def folder_of(name):
    return name.partition(":")[0]


def listed(text):
    """{use: names} of the list's text."""
    found = {use: [] for use in USES}
    seen = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if not match or match.group(1) not in USES:
            sys.exit(f"tests/sanitized.txt:{number}: a line is {', '.join(USES[:-1])} or {USES[-1]}, then the name of a test "
                     f"of unit, but this one is \"{line}\"")
        if match.group(2) in seen:
            sys.exit(f"tests/sanitized.txt:{number}: \"{match.group(2)}\" is listed twice")
        seen.add(match.group(2))
        found[match.group(1)].append(match.group(2))
    return found


def left_out(found, seed):
    """The names that `make sanitize` leaves out: the rest, and two of three of each folder's part."""
    folders = {}
    for name in found["part"]:
        folders.setdefault(folder_of(name), []).append(name)
    names = list(found["rest"])
    for part in folders.values():
        part.sort(key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
        names += part[-(-len(part) // ONE_OF):]
    return sorted(names)


def findings(found, tests, folders):
    """What is wrong with the list, if these are the names of a build's tests and the folders of tests/unit."""
    names = [name for use in USES for name in found[use]]
    wrong = [f"tests/sanitized.txt: there is no test \"{name}\"" for name in names if name not in tests]
    for folder in folders:
        some = [name for name in tests if folder_of(name) == folder]
        if all(name in found["part"] + found["rest"] for name in some):
            wrong.append(f"tests/sanitized.txt: no test of {folder} runs under sanitizers with every seed")
    return wrong


def tests_of(build):
    done = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True)
    return set(re.findall(r"^ *Test +#\d+: (.*)$", done.stdout, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", default="1")
    parser.add_argument("--check", metavar="FOLDER")
    given = parser.parse_args()
    found = listed(LIST.read_text())
    if given.check:
        folders = [f"unit/{path.name}" for path in sorted((sources.ROOT / "tests/unit").iterdir()) if path.is_dir()]
        return sources.report(findings(found, tests_of(given.check), folders),
                              f"{sum(map(len, found.values()))} costly tests: sanitized")
    print(reach.expression(left_out(found, given.seed)))


if __name__ == "__main__":
    sys.exit(main())
