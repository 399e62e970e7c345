#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests of .ci/run may cost, and which of them a change that does not reach them leaves out (tests/budget.txt).

    budget.py check             checks the sums of the file
    budget.py tests BUILD       checks that each of its lines matches a test of a build
    budget.py measured BUILD    compares the times of the last run of a build's tests with it, in lines to read: a test
                                that takes a second or more and has no line is named with the line to add
    budget.py build BUILD       names the files that took more than 2 % of a build

A test occupies a second if it takes the whole machine of two cores for a second: its seconds, times its share of the
machine (ctest's PROCESSORS, in sixths of a core).
"""
import fnmatch
import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import sources

FILE = "tests/budget.txt"
MACHINE = 12  # sixths of its two cores
HEAD = re.compile(r"\[(.+)\] +(\d+)")
LINE = re.compile(r"([\d.]+) +(0|1(?:/\d+)?) +(0|1(?:/\d+)?) +(\S.*)")
SMALLEST = 1.0  # seconds of a test that needs a line
GROWN = 1.5


class Line:
    """A test, or those that a pattern with * matches. `reached` and `otherwise`: one of so many seeds runs it if the change
    reaches it or not; 0: none."""

    def __init__(self, match, number):
        self.number = number
        self.seconds = float(match.group(1))
        self.reached, self.otherwise = (int(text.partition("/")[2] or text) for text in match.group(2, 3))
        self.test = match.group(4)
        self.pattern = re.compile(".*".join(re.escape(part) for part in self.test.split("*")))

    def fits(self, name):
        return self.pattern.fullmatch(name) is not None

    @property
    def counted(self):
        """Its seconds on the mean of all days, for a change that reaches it. What runs only if it is reached is not counted:
        such tests are few, and no change reaches all of them."""
        return self.seconds / self.reached if self.otherwise else 0


class Budget:
    def __init__(self):
        self.total, self.rest = 0, 0
        self.folders = []  # (name, sum, lines, number of the head)

    @property
    def lines(self):
        return [line for folder in self.folders for line in folder[2]]


def read(path):
    budget = Budget()
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if not text or text.startswith("#"):
            continue
        head, line = HEAD.fullmatch(text), LINE.fullmatch(text)
        word, _, value = text.partition(" ")
        if word in ("total", "rest") and value.strip().isdigit():
            setattr(budget, word, int(value))
        elif head:
            budget.folders.append((head.group(1), int(head.group(2)), [], number))
        elif line and budget.folders:
            budget.folders[-1][2].append(Line(line, number))
        else:
            sys.exit(f"{FILE}:{number}: a line is \"SECONDS REACHED OTHERWISE TEST\", such as \"2.5  1  1/3  program:a test*\", "
                     f"below a line \"[FOLDER] SECONDS\", but this one is \"{text}\"")
    return budget


@functools.cache
def line_of(name, lines):
    """The first line that fits a test, or None: it is one of the rest, which always run."""
    return next((line for line in lines if line.fits(name)), None)


def sums(budget):
    """Findings: sums beyond those that the file allows."""
    found, whole = [], budget.rest
    for name, allowed, lines, number in budget.folders:
        seconds = sum(line.counted for line in lines)
        whole += allowed
        if seconds > allowed:
            found.append(f"{FILE}:{number}: the lines of [{name}] are {seconds:.3g} s, {seconds - allowed:.2g} more than its {allowed}: "
                         "let a part of its cases wait for make check-all (tests/support/part.hpp), give a line a share, such "
                         f"as 1/4, or write [{name}] {-(-seconds // 1):g} and take as much from another folder")
    if whole > budget.total:
        found.append(f"{FILE}: its folders and the rest have {whole} s, {whole - budget.total} more than the total of "
                     f"{budget.total}, to which 20 minutes of .ci/run correspond: take as much from a folder")
    return found


# not every processor and compiler has these
MAY_BE_ABSENT = ("unit/kernels_v3:*", "gpu/traffic:*")


def without_test(budget, tests):
    return [f"{FILE}:{line.number}: there is no test \"{line.test}\"; take the line out, or write the test's new name"
            for line in budget.lines if line.test not in MAY_BE_ABSENT and not any(line.fits(name) for name in tests)]


def listed(build):
    """{name: sixths of a core} of a build's tests."""
    done = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    return {test["name"]: next((p["value"] for p in test.get("properties", []) if p["name"] == "PROCESSORS"), 1)
            for test in json.loads(done.stdout)["tests"]}


def occupied(junit, sixths):
    """{name: occupied seconds} of the tests that ran."""
    return {case.get("name"): float(case.get("time", 0)) * min(sixths.get(case.get("name"), 1), MACHINE) / MACHINE
            for case in ElementTree.fromstring(junit).iter("testcase") if case.get("status") in ("run", "fail")}


def compared(budget, seconds, names):
    """Lines to read about measured seconds of some of a build's tests. All are scaled by the machine's speed of this run:
    one test that grew is seen, a slow machine is not."""
    lines = tuple(budget.lines)
    matching = {line: sum(line_of(name, lines) is line for name in names) for line in lines}
    spent, alone = {}, {}
    for name, value in seconds.items():
        line = line_of(name, lines)
        if line:
            spent.setdefault(line, []).append(value)
        else:
            alone[name] = value
    # of a pattern, some tests may have been left out
    due = {line: line.seconds * len(values) / matching[line] for line, values in spent.items()}
    planned = sum(due.values())
    measured = sum(map(sum, spent.values()))
    speed = measured / planned if planned and measured else 1
    text = [f"budget: {measured + sum(alone.values()):.0f} occupied s; this run took {speed:.2f} times the seconds of {FILE}"]
    rest = sum(alone.values()) / speed
    if rest > GROWN * budget.rest:
        text.append(f"budget: the tests without a line take {rest:.0f} s; {FILE} says rest {budget.rest}")
    for line, values in spent.items():
        value = sum(values) / speed
        if value > GROWN * due[line] and value - due[line] > SMALLEST:
            text.append(f"budget: {FILE}:{line.number}: {line.test}: {value:.1f} s instead of {due[line]:.1f}")
    for name, value in sorted(alone.items(), key=lambda item: -item[1]):
        if value / speed >= SMALLEST:
            text.append(f"budget: {FILE} lacks a test of {value / speed:.1f} s; its line, below [{name.partition(':')[0]}]: "
                        f"{value / speed:.1f}  1  1/3  {name}")
    return text


def dear_files(log):
    """(file, its share of the build) of those with more than 2 %, from Ninja's log."""
    took = {}
    for line in log.splitlines():
        fields = line.split("\t")
        if len(fields) == 5:
            took[fields[3]] = int(fields[1]) - int(fields[0])
    whole = sum(took.values())
    return [(name, value / whole) for name, value in sorted(took.items(), key=lambda item: -item[1]) if value > whole / 50]


def main():
    verb, build = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    if verb == "build":
        for name, share in dear_files((Path(build) / ".ninja_log").read_text()):
            print(f"budget: {name} took {100 * share:.1f} % of the build")
        return 0
    budget = read(sources.ROOT / FILE)
    if verb == "check":
        return sources.report(sums(budget), f"{len(budget.lines)} lines: budget of tests")
    if verb == "tests":
        return sources.report(without_test(budget, listed(build)), f"{len(budget.lines)} lines: budget of tests")
    if verb == "measured":
        junit = Path(build) / "Testing/tests.xml"
        if junit.exists():
            sixths = listed(build)
            print("\n".join(compared(budget, occupied(junit.read_text(errors="replace"), sixths), list(sixths))))
        return 0
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
