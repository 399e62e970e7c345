#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the table of exposed communication in doc/performance.md with what bench/exposed.py prints.

    tests/tools/exposed_table.py build/coeus

Last digits may differ by one: another compiler rounds other sums.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = "doc/performance.md"


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def is_near(a, b):
    """True if the texts are equal, or are numbers of one form that differ by at most one in the last digit."""
    def form(text):
        return re.sub(r"[-+]?[\d,]*\d", "#", text)

    def digits(text):
        return int(re.sub(r"[^-\d]", "", text) or 0)

    return a == b or (form(a) == form(b) and abs(digits(a) - digits(b)) <= 1)


def differences(expected, printed):
    """Returns a text for each row in which the tables differ. Both are lists of lines."""
    lines = [f"{len(expected)} lines instead of {len(printed)}"] if len(expected) != len(printed) else []
    for ours, theirs in zip(expected, printed):
        a, b = cells_of(ours), cells_of(theirs)
        if len(a) != len(b) or not all(map(is_near, a, b)):
            lines.append(f"has    {ours}\nprinted {theirs}")
    return lines


def main():
    text = (ROOT / DOCUMENT).read_text()
    table = re.search(r"^\| mesh \| step \|(?:.*\n)(?:\|.*\n)*", text, re.MULTILINE)
    if not table:
        sys.exit(f"{DOCUMENT} has no table that begins with \"| mesh | step |\"")
    done = subprocess.run([ROOT / "bench/exposed.py", "--program", Path(sys.argv[1]).resolve()], capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = differences(table[0].splitlines(), done.stdout.splitlines())
    if found:
        sys.exit(f"{DOCUMENT}, exposed communication, is not what bench/exposed.py prints:\n" + "\n".join(found))
    print(f"{DOCUMENT} has what bench/exposed.py prints: {len(done.stdout.splitlines()) - 2} meshes")


if __name__ == "__main__":
    main()
