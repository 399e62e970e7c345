#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants bugs, one at a time, and checks that the tests find them.

    plant.py --check [--build FOLDER]     checks that each mutant of list.txt fits its file at exactly one line and, with
                                          a build, that its tests exist
    plant.py --run FOLDER [--only REGEX]  plants each mutant in a copy of the sources in FOLDER, builds it and runs its
                                          tests; skips mutants that an earlier run of the same list found
        --ci [--seed N]                   runs what .ci/run chooses for a change that is the mutant, on the day N: first of
                                          the mutant's tests, which must pass without a mutant, then, if these do not find
                                          it, of all
        --sample N                        N of the mutants, drawn by the seed

A mutant of list.txt is a block of lines:
    name: the bug in a few words
    file: src/folder/file.cpp
    in: a line of the file; the changed line is the first match after it (only if there are several matches)
    - the line to change, without its indentation
    + the new line (without a "+", the old line is deleted)
    tests: a regular expression that matches names of tests; at least one of them must fail
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

here = pathlib.Path(__file__).resolve().parent
sources = here.parent.parent
sys.path.insert(0, str(sources / "tools"))

import budget  # noqa: E402
import reach  # noqa: E402


class Mutant:
    def __init__(self, block, first_line):
        self.place = f"{here.name}/list.txt:{first_line}"
        self.text = "\n".join(block)
        self.name = self.file = self.anchor = self.tests = ""
        self.old = self.new = ""
        keys = [line.partition(" ")[0] for line in block]
        for key in keys:
            if keys.count(key) > 1: raise SystemExit(f"{self.place}: two lines begin with \"{key}\"")
        for line in block:
            key, _, value = line.partition(" ")
            value = value.strip()
            if key == "name:": self.name = value
            elif key == "file:": self.file = value
            elif key == "in:": self.anchor = value
            elif key == "tests:": self.tests = value
            elif key == "-": self.old = value
            elif key == "+": self.new = value
            else: raise SystemExit(f"{self.place}: \"{line}\" is not a line of a mutant")
        for what in ("name", "file", "old", "tests"):
            if not getattr(self, what): raise SystemExit(f"{self.place}: the mutant has no {what}")
        if self.old == self.new: raise SystemExit(f"{self.place}: the mutant changes nothing")

    def line_in(self, lines):
        """Returns the index of the line, or an error as text."""
        stripped = [line.strip() for line in lines]
        begin = 0
        if self.anchor:
            if stripped.count(self.anchor) != 1:
                return f"{self.place}: \"{self.anchor}\" occurs {stripped.count(self.anchor)} times in {self.file}"
            begin = stripped.index(self.anchor)
        found = [i for i in range(begin, len(lines)) if stripped[i] == self.old]
        if not found or (len(found) > 1 and not self.anchor):
            return f"{self.place}: \"{self.old}\" occurs {len(found)} times in {self.file}"
        return found[0]

    def planted(self, text):
        lines = text.split("\n")
        number = self.line_in(lines)
        if isinstance(number, str): raise SystemExit(number)
        line = lines[number]
        lines[number] = line[:len(line) - len(line.lstrip())] + self.new
        return "\n".join(lines)


def mutants():
    all_mutants, block, first = [], [], 0
    for number, line in enumerate((here / "list.txt").read_text().split("\n") + [""], 1):
        if line.startswith("#"): continue
        if line.strip():
            if not block: first = number
            block.append(line)
        elif block:
            all_mutants.append(Mutant(block, first))
            block = []
    names = [mutant.name for mutant in all_mutants]
    for name in names:
        if names.count(name) > 1: raise SystemExit(f"list.txt: two mutants are called \"{name}\"")
    return all_mutants


def test_names(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^ *Test +#\d+: (.*)$", listed, re.MULTILINE)


def programs_of_tests(build):
    """Returns for each test the files of the build that its command names, as Ninja targets."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True,
                            check=True).stdout
    return {test["name"]: {str(pathlib.Path(word).relative_to(build)) for word in test.get("command", [])
                           if word.startswith(f"{build}/") and pathlib.Path(word).is_file()}
            for test in json.loads(listed)["tests"]}


def check(build):
    errors = []
    tests = test_names(build) if build else []
    # .ci/run builds these programs only if a change reaches kernels; until then no test has its name
    absent = [begin for begin in reach.APART.values() if not any(test.startswith(begin) for test in tests)]
    all_mutants = mutants()
    for mutant in all_mutants:
        file = sources / mutant.file
        found = mutant.line_in(file.read_text().split("\n")) if file.is_file() else f"{mutant.place}: there is no {mutant.file}"
        if isinstance(found, str): errors.append(found)
        if build and not any(re.search(mutant.tests, test) for test in tests) and \
                not any(mutant.tests.startswith(f"^{begin}".rstrip(":")) for begin in absent):
            errors.append(f"{mutant.place}: no test matches \"{mutant.tests}\"")
    print("\n".join(errors) if errors else f"{len(all_mutants)} mutants: each fits its file")
    return 1 if errors else 0


def copy_sources(to):
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=sources, capture_output=True,
                            check=True).stdout.decode().split("\0")
    kept = {name for name in listed if name and (sources / name).is_file()}
    for name in sorted(kept):
        target = to / name
        if target.is_file() and target.read_bytes() == (sources / name).read_bytes(): continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sources / name, target)
    # sources that an earlier run copied and that were moved since would be compiled too
    for file in to.rglob("*"):
        name = file.relative_to(to)
        if file.is_file() and name.parts[0] != "build" and str(name) not in kept: file.unlink()


class Choice:
    """The tests that .ci/run runs if only one file has changed since the build that was there at first."""

    def __init__(self, build, seed):
        self.build, self.seed = build, seed
        self.lines = tuple(budget.read(sources / budget.FILE).lines)
        self.blocks = reach.blocks((sources / reach.REACH).read_text())
        self.includes = reach.all_includes()
        self.before = {"programs": reach.programs_of(build, self.blocks), "libraries": reach.libraries_of(build)}

    def reaches_kernels(self, file):
        return reach.fits(self.includes.reached([file]) | {file}, reach.KERNELS)

    def tests(self, file):
        """The tests that run, and the others."""
        reach.bytes_of.cache_clear()
        tests = reach.tests_of(self.build)
        reached = reach.reached_tests(tests, self.build, self.before, {file}, self.blocks)
        if not self.reaches_kernels(file):
            reached = {name for name in reached if not reach.is_apart(name, tests[name][0])}
        # the check of the list of mutants would find each of them
        chosen = {name for name in tests if not name.startswith("mutants:")} - \
            reach.left_out(tests, reached, self.lines, self.seed).keys()
        return chosen, set(tests) - chosen


def run(folder, only, ci, seed, sample):
    copy = pathlib.Path(folder).resolve() / "source"
    copy_sources(copy)
    done_file = copy.parent / ("found-by-ci.txt" if ci else "found.txt")
    os.environ.setdefault("COEUS_SHARED", str(sources.parent / "shared"))  # golden values; none lie beside the copy
    # a mutant's own tests run whole, .ci/run's as on that day
    os.environ.update({"COEUS_PART_SEED": str(seed)} if ci else {"COEUS_CHECK_ALL": "1"})
    done = set(done_file.read_text().split("\n\n")) if done_file.is_file() else set()

    def call(*command):
        with open(copy.parent / "log.txt", "a") as log:
            return subprocess.run(command, cwd=copy, stdout=log, stderr=log).returncode

    def build(*targets):
        # a test of a script may need no program
        return call("cmake", "--build", "build", "--target", *targets) if targets else 0

    # a bug may make a test hang, so the time limit is short; a test that reaches it has found the bug
    if not (copy / "build/build.ninja").is_file() and \
            call("cmake", "--preset", "release", "-DCOEUS_TEST_TIMEOUT_FACTOR=1") != 0:
        raise SystemExit(f"the copy cannot be configured; see {copy.parent}/log.txt")
    if build("coeus_program", "coeus_tests", "coeus_kernel_tests") != 0:
        raise SystemExit(f"the copy cannot be built; see {copy.parent}/log.txt")
    programs = programs_of_tests(copy / "build")
    chosen = [m for m in mutants() if re.search(only, m.name)]
    if sample: chosen = random.Random(seed).sample(chosen, min(sample, len(chosen)))
    choice = Choice(copy / "build", seed) if ci else None

    def failures(*options):
        """The tests that failed. That none ran is an error."""
        call("ctest", "--test-dir", "build", "--stop-on-failure", "-j12", "--output-junit", "Testing/mutant.xml", *options)
        cases = list(ElementTree.parse(copy / "build/Testing/mutant.xml").iter("testcase"))
        if not {case.get("status") for case in cases} & {"run", "fail"}: raise SystemExit(f"no test ran; see {copy.parent}/log.txt")
        return [case.get("name") for case in cases if case.get("status") == "fail"]

    def found_by_ci(mutant):
        chosen, others = choice.tests(mutant.file)
        own = {name for name in chosen if re.search(mutant.tests, name)}
        if own and failures("-R", reach.expression(own)): return "found"
        targets = ["coeus_program", "coeus_tests"] + ["coeus_kernel_tests"] * choice.reaches_kernels(mutant.file)
        if build(*targets) != 0: return "does not compile"
        others = choice.tests(mutant.file)[1]
        found = failures("-E", reach.expression(others | own))
        return f"found by {found[0]} ({len(own)} of its own tests ran)" if found else "SURVIVED"

    if ci:
        planted = [mutant for mutant in chosen if mutant.text not in done]
        own = sorted(test for test in programs if any(re.search(mutant.tests, test) for mutant in planted))
        # in parts: all names are too long for one regular expression
        for begin in range(0, len(own), 300):
            if wrong := failures("-R", reach.expression(own[begin:begin + 300])):
                raise SystemExit(f"{wrong[0]} fails without any mutant; see {copy.parent}/log.txt")
    survived, number = [], 0
    for mutant in chosen:
        number += 1
        label = f"{number} of {len(chosen)}: {mutant.name}"
        if mutant.text in done:
            print(f"{label}: found before", flush=True)
            continue
        file = copy / mutant.file
        right = file.read_text()
        file.write_text(mutant.planted(right))
        try:
            wanted = {program for test in programs if re.search(mutant.tests, test) for program in programs[test]}
            if build(*sorted(wanted)) != 0:
                result = "does not compile"
            elif ci:
                result = found_by_ci(mutant)
            else:
                failed = call("ctest", "--test-dir", "build", "-R", mutant.tests, "--stop-on-failure", "-j2",
                              "--no-tests=error")
                result = "found" if failed else "SURVIVED"
        finally:
            file.write_text(right)
        print(f"{label}: {result}", flush=True)
        if result.startswith("found"):
            with open(done_file, "a") as found: found.write(mutant.text + "\n\n")
        else:
            survived.append(mutant.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} found")
    return 1 if survived else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", default="")
    parser.add_argument("--run", metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--seed", type=int, default=reach.seed(sources), metavar="N")
    parser.add_argument("--sample", type=int, metavar="N")
    options = parser.parse_args()
    if options.check == bool(options.run): parser.error("give --check or --run FOLDER")
    return check(options.build) if options.check else run(options.run, options.only, options.ci, options.seed,
                                                               options.sample)


if __name__ == "__main__":
    sys.exit(main())
