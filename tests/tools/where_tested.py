#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names the tests of a source: where_tested.py [SOURCE...]. Without arguments it lists every source in src.

The first of these counts: a test at the same path in tests/unit; a test with the same name in another folder; the tests
in tests/where_tested.txt; tests that include the header of the source. test_tools.py fails if a source has none."""
import fnmatch
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# folders without test cases
NOT_TESTS = {"support", "stand_ins", "tools", "data"}


def sources(root=ROOT):
    return sorted(p.relative_to(root) for p in (root / "src").rglob("*") if p.suffix in (".cpp", ".cu"))


class Tests:
    def __init__(self, root=ROOT):
        self.root = root
        self.files = sorted(p.relative_to(root) for p in (root / "tests").rglob("*.cpp")
                            if p.relative_to(root).parts[1] not in NOT_TESTS)
        self.includes = {p: self.headers(p, (root / p).read_text()) for p in self.files}
        self.table = []  # (pattern, tests)
        for line in (root / "tests/where_tested.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                pattern, files = line.split(": ")
                self.table.append((pattern, [Path("tests") / name for name in files.split(", ")]))

    def headers(self, path, text):
        """Our own headers that a file includes, relative to the root: "include/coeus/hub/hub.hpp", "src/io/checkpoint_file.hpp"."""
        found = set()
        for name in INCLUDE.findall(text):
            if name.startswith("coeus/"):
                found.add(Path("include") / name)
            else:
                beside = (self.root / path).parent / name
                if beside.exists():
                    found.add(beside.resolve().relative_to(self.root))
        return found

    def of(self, source):
        """(how they were found, the tests)"""
        text = (self.root / source).read_text() if (self.root / source).exists() else ""
        parts = source.relative_to("src")
        twin = Path("tests/unit") / parts.with_suffix(".cpp")
        if twin in self.files:
            return "its own", [twin]
        folder = parts.parts[0]
        same = [p for p in self.files if p.stem == source.stem and folder in p.parts]
        if same:
            return "by name", same
        for pattern, files in self.table:
            if fnmatch.fnmatch(str(parts), pattern):
                return "by the table", files
        # a source begins with the header of its own functions
        own = [h for h in self.headers(source, text) if h.stem == source.stem and folder in h.parts]
        first = INCLUDE.search(text)
        if not own and first:
            own = [h for h in self.headers(source, first.group(0)) if folder in h.parts]
        including = [p for p in self.files if self.includes[p] & set(own)]
        if including:
            return "by header", including
        return "nowhere", []


def main():
    tests = Tests()
    wanted = [Path(a).resolve().relative_to(ROOT) for a in sys.argv[1:]] or sources()
    for source in wanted:
        how, files = tests.of(source)
        print(f"{source}  ({how})  {', '.join(map(str, files))}")


if __name__ == "__main__":
    main()
