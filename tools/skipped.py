#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how many tests the last run of ctest skipped, and why, in a few lines: skipped.py FOLDER. In that folder ctest
has written Testing/tests.xml (--output-junit), and tools/test.sh has kept its log, Testing/LastTest.log. A test gives its
reasons in lines "skipped: WHY". A test that passed may have skipped some of its cases."""
import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

REASON = re.compile(r"^skipped: (.*\S)", re.MULTILINE)
# in LastTest.log, which has the full output of passed tests
TEST = re.compile(r"^\d+/\d+ Testing: (.*)$")


def skipped_tests(cases):
    """{name: output} of the tests that ctest reports as skipped."""
    found = {}
    for case in cases:
        mark = case.find("skipped")
        if mark is not None and mark.get("message", "").startswith("SKIP_"):
            found[case.get("name")] = case.findtext("system-out") or ""
    return found


def passed_tests(cases):
    return {case.get("name") for case in cases if case.get("status") == "run"}


def printed(log):
    """{name: output} of all tests in LastTest.log."""
    found, name = {}, None
    for line in log.splitlines():
        start = TEST.match(line)
        if start:
            name = start.group(1)
        if name is not None:
            found.setdefault(name, []).append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def reasons(outputs):
    """The number of tests for each reason."""
    return Counter(why for output in outputs for why in sorted(set(REASON.findall(output))) or ["no reason is given"])


def lines(junit, log):
    cases = list(ElementTree.fromstring(junit).iter("testcase"))
    if not cases:  # the tests were only listed, or none was found
        return []
    skipped, passed = skipped_tests(cases), passed_tests(cases)
    parts = [output for name, output in printed(log).items() if name in passed and REASON.search(output)]

    def listed(outputs):
        return [f"  {count:4} {why}" for why, count in sorted(reasons(outputs).items(), key=lambda r: (-r[1], r[0]))]

    text = [f"skipped: {len(skipped)} test{'' if len(skipped) == 1 else 's'}"] + listed(skipped.values())
    if parts:
        text += [f"partly skipped: {len(parts)} more"] + listed(parts)
    return text


def main():
    folder = Path(sys.argv[1]) / "Testing"
    junit, log = folder / "tests.xml", folder / "LastTest.log"
    if not junit.exists():
        return 0
    for line in lines(junit.read_text(errors="replace"), log.read_text(errors="replace") if log.exists() else ""):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
