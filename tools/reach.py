#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a change can touch, for .ci/run: which files, which test programs, which tests run (doc/testing.md).

    reach.py summary            the base, the seed, and how much the change reaches
    reach.py seed               the seed: $SEED, otherwise the day of the newest commit
    reach.py state              the commit, if nothing has changed since
    reach.py kernels|cuda       exit code 0 if the change reaches kernels, or code of GPUs; otherwise 3
    reach.py headers            the public headers that it reaches, one a line
    reach.py folders [--drawn]  the folders of tests/unit whose code it reaches, one a line; with a third of the others, by
                                the seed
    reach.py left-out BUILD     a regular expression of the tests of a build that do not run; how many and why goes to
                                BUILD/Testing/left_out.txt
    reach.py report BUILD       prints which tests left-out has left out, by number
    reach.py record BUILD LIST COMMIT [PART ...]
                                remembers that the tests of the commit passed, with the bytes of its programs, and which
                                parts its run lacked; writes tests/checked.txt if LIST is "all" and no part was lacking
    reach.py check [BUILD]      checks tests/reach.txt, also with a build, and tests/checked.txt

The base is the newest commit before this one whose .ci/run was green on this machine, or the one of the last
`make check-all` (tests/checked.txt); $COEUS_BASE names another. A source is reached if it or a header that it includes,
directly or not, has changed since the base. A test is reached if a program that it starts has other bytes than at the
base, or if a file that tests/reach.txt names for it has changed. Everything is reached if there is no base, if files that
decide about this have changed (EVERYTHING below), or with COEUS_REACH unset, as in `make test`. Tests that
tests/budget.txt does not list always run.
"""
import fnmatch
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import budget
import caches
import sources

ROOT = sources.ROOT
REACH = "tests/reach.txt"
CHECKED = "tests/checked.txt"
# what decides how things are built, and what is reached
EVERYTHING = ("CMakeLists.txt", "*/CMakeLists.txt", "*.cmake", "CMakePresets.json", "Makefile", ".ci/run", REACH,
              "tools/reach.py", "tools/budget.py", "tools/test.sh", "tools/packages.txt", "tools/sources.py", "tools/caches.py",
              "tools/compiler_cache.sh", "tools/clang_shim.hpp", "tools/tidy.py", ".clang-tidy", "tools/sanitized.py",
              "tests/sanitized.txt", "tools/leaks.txt", "tools/check_headers.py", "tests/support/mpirun.sh",
              "tests/support/ranks_ended.sh")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
LONGEST = 60000  # CMake's regular expressions end at 65,535 bytes
NOT_REACHED = 3  # an exit code that no error has
MAY_BE_ABSENT = ("gpu/traffic:",)  # of another compiler
# the target coeus_kernel_tests: built and run only if kernels are reached
APART = {"tests/test_kernels_v3": "unit/kernels_v3:", "tests/test_traffic": "gpu/traffic:"}  # and how their tests begin
FOLDERS_DRAWN = 3  # one of so many folders that are not reached is sanitized
MOST_COMMITS, WARNED_COMMITS = 400, 60  # since the last `make check-all`


def git(*arguments, root=ROOT):
    """What git prints, or None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


# ---- base and changes

def is_clean(root=ROOT):
    return git("status", "--porcelain", root=root) == ""


def seed(root=ROOT):
    """The same for everyone who tests this commit."""
    given = os.environ.get("SEED")
    if given:
        return int(given)
    seconds = git("log", "-1", "--format=%ct", root=root)
    return int(seconds) // 86400 if seconds else 0


def checked_commit(root=ROOT):
    """The commit of the last `make check-all`, or None."""
    file = root / CHECKED
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")] if file.exists() else []
    return lines[0].split()[0] if lines else None


def base(root=ROOT, green=None):
    """(commit or None, how it is known)."""
    given = os.environ.get("COEUS_BASE")
    if given:
        commit = git("rev-parse", "--verify", "--quiet", f"{given}^{{commit}}", root=root)
        if not commit:
            sys.exit(f"COEUS_BASE = {given}: there is no such commit")
        return commit.strip(), "COEUS_BASE"
    history = git("rev-list", "HEAD", root=root)
    if history is None:
        return None, "this is not a git repository"
    history = history.split()
    # the commit itself only if something was changed since: a green run of it is repeated as it was
    earlier = history[1:] if is_clean(root) else history
    green = green if green is not None else caches.folder("ci-green")
    known = {file.name for file in green.iterdir()} if green else set()
    checked = checked_commit(root)
    for commit in earlier:
        if commit in known:
            return commit, "its .ci/run was green here"
        if commit == checked:
            return commit, "its make check-all was green"
    return None, "no earlier commit is known to be green"


@functools.cache
def the_base():
    return base()


def changed_since(commit, root=ROOT):
    """The paths that differ between a commit and the working tree, new files too."""
    differing = git("diff", "--name-only", "--no-renames", commit, root=root)
    new = git("ls-files", "--others", "--exclude-standard", root=root)
    return None if differing is None or new is None else set(differing.splitlines() + new.splitlines())


@functools.cache
def changed():
    """The changed paths, or None: everything counts as changed."""
    if not os.environ.get("COEUS_REACH") or os.environ.get("COEUS_CHECK_ALL"):
        return None
    commit, _ = the_base()
    found = changed_since(commit) if commit else None
    before = recorded(commit)
    if found is None or reaches_everything(found) or (before and before.get("tools") != versions()):
        return None
    return frozenset(found)


def lacked(part):
    """Whether the base's run left out a part that it should have had."""
    before = recorded(the_base()[0]) if changed() is not None else None
    return bool(before) and part in before.get("missing", ())


def reaches_everything(paths):
    return sorted(path for path in paths if any(fnmatch.fnmatch(path, pattern) for pattern in EVERYTHING))


# ---- sources

class Includes:
    """Which of our files include which."""

    def __init__(self, files, root=ROOT):
        self.root = root
        self.files = {str(path) for path in files}
        self.ends = {}  # of a file that no folder below leads to: all that have its name
        for path in self.files:
            self.ends.setdefault(path.rsplit("/", 1)[-1], []).append(path)
        self.found = {}

    def of(self, path):
        """The files that `path` names in its includes. A name that may mean several files means all of them."""
        if path not in self.found:
            names = INCLUDE.findall((self.root / path).read_text(errors="replace"))
            included = set()
            for name in names:
                near = [os.path.normpath(f"{folder}/{name}") for folder in (os.path.dirname(path), "include", "src", "tests")]
                exact = [other for other in near if other in self.files]
                end = os.path.normpath(name).lstrip("./")
                included.update(exact[:1] or [other for other in self.ends.get(end.rsplit("/", 1)[-1], ())
                                              if other == end or other.endswith("/" + end)])
            self.found[path] = included
        return self.found[path]

    def reached(self, changes):
        """The files that are in `changes` or include one of them, directly or not."""
        users = {}
        for path in self.files:
            for other in self.of(path):
                users.setdefault(other, set()).add(path)
        seen, left = set(), [path for path in changes if path in self.files]
        while left:
            path = left.pop()
            if path not in seen:
                seen.add(path)
                left += users.get(path, ())
        return seen


@functools.cache
def reached_sources():
    """Our code that the change reaches, or None: all of it."""
    changes = changed()
    if changes is None:
        return None
    return frozenset(all_includes().reached(changes))


def all_includes():
    return Includes([path for path in sources.code() if path.parts[0] in ("include", "src", "tests", "bench")])


KERNELS = ("src/kernels/*", "include/coeus/kernels/*", "tests/unit/kernels/*", "tests/stand_ins/c*/*", "*.cu",
           "tests/gpu/traffic*", "tests/support/*cases*")
CUDA = ("*.cu", "src/*/*cuda*", "tests/gpu/*", "tools/kernel_*", "tools/keep_ptxas.sh", "bench/gpu*")


def fits(found, patterns):
    """Whether one of the paths matches; None stands for all."""
    return found is None or any(fnmatch.fnmatch(path, pattern) for path in found for pattern in patterns)


def reaches(patterns):
    found = reached_sources()
    return fits(None if found is None else found | changed(), patterns)


def folders(found):
    """The folders of tests/unit whose code is reached: sources of src, its headers, its tests."""
    names = sorted(path.name for path in (ROOT / "tests/unit").iterdir() if path.is_dir())
    if found is None:
        return names
    # the kernels of GPUs, in the emulation, and those of CPUs have no source in common with the other folders
    homes = {name: [f"src/{name}/*", f"include/coeus/{name}/*", f"tests/unit/{name}/*"] for name in names}
    homes["cuda"] = ["src/*.cu", "src/*.cuh", "tests/unit/cuda/*", "tests/stand_ins/cuda/*", "tests/gpu/*"]
    return [name for name in names if any(fnmatch.fnmatch(path, home) for path in found for home in homes[name])]


# ---- tests

class Block:
    """A block of tests/reach.txt: these tests read these files, and start these programs of the build."""

    def __init__(self, number):
        self.number, self.tests, self.files, self.built = number, "", [], []

    def fits(self, test):
        return re.match(self.tests, test) is not None


def blocks(text):
    found, block = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            continue
        key, _, value = line.partition(": ")
        if not line:
            block = None
        elif key == "tests" and value:
            block = Block(number)
            block.tests = value
            found.append(block)
        elif block and key in ("files", "built"):
            setattr(block, key, getattr(block, key) + value.split())
        else:
            sys.exit(f"{REACH}:{number}: a line is \"tests: REGULAR EXPRESSION\", then \"files: PATH ...\" or "
                     f"\"built: PATH ...\", but this one is \"{line}\"")
    return found


def tests_of(build):
    """{name: (files of the build that the test starts, other files that its command names)}."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    found = {}
    for test in json.loads(listed.stdout)["tests"]:
        built, files = set(), set()
        for word in test.get("command", []):
            path = Path(word)
            if not path.is_absolute() or not path.is_file():
                continue
            path = path.parent.resolve() / path.name  # ctest keeps links to folders
            if path.is_relative_to(build):
                built.add(str(path.relative_to(build)))
            elif path.is_relative_to(ROOT):
                files.add(str(path.relative_to(ROOT)))
        found[test["name"]] = (built, files)
    return found


def is_apart(name, built):
    # Catch2 gives the tests of a program that is not there one name, such as test_traffic_NOT_BUILT-b12d07c
    return bool(APART.keys() & built) or f"tests/{name.partition('_NOT_BUILT')[0]}" in APART


@functools.cache
def bytes_of(path):
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(1 << 22):
            digest.update(part)
    return digest.hexdigest()


def libraries_of(build):
    """A digest of the system's libraries that the program loads: which they are, how long and how old."""
    done = subprocess.run(["ldd", build / "coeus"], capture_output=True, text=True)
    paths = sorted(set(re.findall(r"(/\S+) \(0x", done.stdout)))
    return hashlib.blake2b("\n".join(f"{path} {os.stat(path).st_size} {os.stat(path).st_mtime_ns}" for path in paths
                                     if os.path.exists(path)).encode(), digest_size=16).hexdigest()


@functools.cache
def versions():
    """The versions of what compiles and starts the tests, as text."""
    found = []
    for tool in ("g++", "clang++", "cmake", "mpirun", "nvcc"):
        try:
            done = subprocess.run([tool, "--version"], capture_output=True, text=True)
            found.append(done.stdout)
        except OSError:
            found.append(f"no {tool}")
    return "\n".join(found)


def recorded(commit):
    """What `record` wrote about a commit, or None."""
    folder = caches.folder("ci-green")
    try:
        return json.loads((folder / commit).read_text()) if folder and commit else None
    except (OSError, ValueError):
        return None


def reached_tests(tests, build, before, changes, listed):
    """The tests that the change reaches. `before`: what was recorded at the base, or None."""
    if changes is None or before is None or before.get("libraries") != libraries_of(build):
        return set(tests)
    same = {path: (build / path).is_file() and bytes_of(build / path) == digest for path, digest in before["programs"].items()}
    found = set()
    for name, (built, files) in tests.items():
        fitting = [block for block in listed if block.fits(name)]
        starts = built.union(*(block.built for block in fitting))
        reads = files.union(*(block.files for block in fitting))
        if not starts and not reads:
            found.add(name)  # nothing is known of it
        elif not all(same.get(path, False) for path in starts):
            found.add(name)
        elif any(change == path or change.startswith(path.rstrip("/") + "/") for change in changes for path in reads):
            found.add(name)
    return found


def draws(name, number, shares):
    """Whether the seed draws a test, of which on the mean one of `shares` seeds draws each. 0 shares: none does. Unlike the
    parts of cases (tests/support/part.hpp), the draws of successive seeds are independent: if both went round, a test that
    is drawn would always have the same part of its cases."""
    if shares == 0:
        return False
    return int.from_bytes(hashlib.sha256(f"{number} {name}".encode()).digest()[:8], "big") % shares == 0


def left_out(tests, reached, lines, number):
    """{name: why} of the tests that do not run."""
    found = {}
    for name, (built, _) in tests.items():
        line = budget.line_of(name, lines)
        if is_apart(name, built) and name not in reached:
            found[name] = "not reached"
        elif line and not draws(name, number, line.reached if name in reached else line.otherwise):
            found[name] = "drawn by another seed" if name in reached else "not reached"
    return found


def choose(build):
    build = (ROOT / build).resolve()
    tests = tests_of(build)
    lines = tuple(budget.read(ROOT / budget.FILE).lines)
    if os.environ.get("COEUS_REACH"):
        reached = reached_tests(tests, build, recorded(the_base()[0]), changed(), blocks((ROOT / REACH).read_text()))
        if not reaches(KERNELS):  # their programs are not built, or were built from other sources
            reached = {name for name in reached if not is_apart(name, tests[name][0])}
    else:  # `make test`: all, but not those that run only for a change that reaches them
        reached = {name for name in tests if not (line := budget.line_of(name, lines)) or line.otherwise > 0}
    if os.environ.get("COEUS_CHECK_ALL"):
        found = {}
    else:
        found = left_out(tests, reached, lines, seed())
    report = build / "Testing/left_out.txt"
    report.parent.mkdir(exist_ok=True)
    report.write_text("".join(f"{why}: {name}\n" for name, why in sorted(found.items(), key=lambda item: item[::-1])))
    return expression(found)


def expression(names):
    """A regular expression of CMake that matches these names only. No test has an empty name."""
    text = "^(" + "|".join(re.sub(r"([^\w\s,':/-])", r"\\\1", name) for name in sorted(names)) + ")$"
    if len(text) > LONGEST:
        sys.exit(f"{len(names)} names of tests are more than CMake takes as one regular expression")
    return text


def programs_of(build, listed):
    """{path: digest} of the files of a build that tests start."""
    built = set().union(*(files for files, _ in tests_of(build).values()), *(block.built for block in listed))
    return {path: bytes_of(build / path) for path in sorted(built) if (build / path).is_file()}


def report(build):
    file = ROOT / build / "Testing/left_out.txt"
    names = file.read_text().splitlines() if file.exists() else []
    if not names:
        return
    print(f"left out: {len(names)} tests; `make check-all` runs them")
    for why in sorted({line.partition(": ")[0] for line in names}):
        of_it = [line.partition(": ")[2] for line in names if line.startswith(f"{why}: ")]
        folders = sorted({name.partition(":")[0] for name in of_it})
        print(f"  {len(of_it):4} {why}: {', '.join(folders)}")
    print(f"  {build}/Testing/left_out.txt names them")


def write_checked(commit):
    file = ROOT / CHECKED
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    date = git("log", "-1", "--format=%cs").strip()
    file.write_text("\n".join([*head, f"{commit} {date}"]) + "\n")
    print(f"{CHECKED} now names {commit[:8]}: commit it")


def state():
    """The commit that the working tree equals, or "" if there is none."""
    return (git("rev-parse", "HEAD") or "").strip() if is_clean() else ""


def record(build, which, commit, missing):
    """`commit`: what `state` said at the start of the run. `missing`: the parts that the run should have had."""
    folder = caches.folder("ci-green")
    if commit != state() or not commit or os.environ.get("COEUS_BASE"):
        print("reach: this run is not recorded: it was not of one commit, or of changes since a base that was given")
        return
    if which == "all" and missing:
        print(f"{CHECKED} is not written, since {' and '.join(missing)} did not run")
    elif which == "all":
        write_checked(commit)
    if not folder:
        return
    caches.remove_unused(folder, days=60)
    build = (ROOT / build).resolve()
    programs = programs_of(build, blocks((ROOT / REACH).read_text()))
    if not reaches(KERNELS):
        # these programs were not built: those of the base are the ones that passed
        before = recorded(the_base()[0]) or {"programs": {}}
        programs = {path: digest for path, digest in programs.items() if path not in APART}
        programs |= {path: digest for path, digest in before["programs"].items() if path in APART}
    part = folder / f"{commit}.part"
    part.write_text(json.dumps({"programs": programs, "libraries": libraries_of(build), "tools": versions(), "missing": missing}))
    part.rename(folder / commit)


# ---- what a reader sees

def summary():
    commit, why = the_base()
    if not commit:
        lines = [f"reach: everything, since {why}"]
    else:
        paths = changed_since(commit)
        lines = [f"reach: since {commit[:8]} ({why}): {len(paths)} files"]
        decisive = reaches_everything(paths)
        if decisive:
            lines.append(f"reach: everything, since {decisive[0]} has changed")
        else:
            lines.append(f"reach: {len(reached_sources())} sources, unit tests of {', '.join(folders(reached_sources())) or 'no folder'}")
    return lines + [f"reach: the seed of this day is {seed()} (SEED={seed()} make test)"]


def findings(root=ROOT):
    """What is wrong with tests/reach.txt and tests/checked.txt."""
    found = []
    for block in blocks((root / REACH).read_text()):
        found += [f"{REACH}:{block.number}: there is no {path}; take it out of the line \"files:\", or write its new name"
                  for path in block.files if not (root / path).exists()]
    return found + checked_findings(root)[0]


def findings_of_build(listed, tests, build):
    """Blocks that fit no test, and files that the build does not have."""
    found = []
    for block in listed:
        if not any(block.fits(name) for name in tests) and block.tests not in MAY_BE_ABSENT:
            found.append(f"{REACH}:{block.number}: no test begins with \"{block.tests}\"; write the test's new name, or take the "
                         "block out")
        found += [f"{REACH}:{block.number}: the build has no {path}; take it out of the line \"built:\", or write its new name"
                  for path in block.built if not (build / path).exists()]
    return found


def checked_findings(root=ROOT):
    """(errors, warnings) about the commit of the last `make check-all`."""
    if git("rev-parse", "--is-shallow-repository", root=root) != "false\n":
        return [], [f"{CHECKED}: without the whole history it is not known how old the last make check-all is"]
    head = git("rev-parse", "HEAD", root=root).strip()
    commit = checked_commit(root)
    advice = f"run `make check-all`, which writes the line, for this commit: {head} DATE"
    if not commit:
        return [f"{CHECKED}: it names no commit; {advice}"], []
    if git("merge-base", "--is-ancestor", commit, "HEAD", root=root) is None:
        return [f"{CHECKED}: {commit} is not an earlier commit of this history; {advice}"], []
    count = int(git("rev-list", "--count", f"{commit}..HEAD", root=root))
    said = f"{CHECKED}: the last make check-all is {count} commits old"
    if count > MOST_COMMITS:
        return [f"{said}, and {MOST_COMMITS} are the most; {advice}"], []
    return [], [f"{said}; {advice}"] if count > WARNED_COMMITS else []


def main():
    verb, rest = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if verb == "summary":
        print("\n".join(summary()))
    elif verb == "seed":
        print(seed())
    elif verb in ("kernels", "cuda"):
        return 0 if reaches(KERNELS if verb == "kernels" else CUDA) or lacked(verb) else NOT_REACHED
    elif verb == "headers":
        found = reached_sources()
        print("\n".join(str(path) for path in sources.code() if path.parts[0] == "include" and
                        (found is None or str(path) in found)))
    elif verb == "folders":
        found = folders(None if lacked("sanitizers") else reached_sources())
        if rest == ["--drawn"]:
            found = [name for name in folders(None) if name in found or draws(name, seed(), FOLDERS_DRAWN)]
        print("\n".join(found))
    elif verb == "left-out" and rest:
        print(choose(rest[0]))
    elif verb == "report" and rest:
        report(rest[0])
    elif verb == "state":
        print(state())
    elif verb == "record" and len(rest) >= 3:
        record(*rest[:3], rest[3:])
    elif verb == "check":
        for warning in checked_findings()[1]:
            print(f"warning: {warning}")
        found = findings()
        if rest:
            build = (ROOT / rest[0]).resolve()
            found += findings_of_build(blocks((ROOT / REACH).read_text()), tests_of(build), build)
        return sources.report(found, "what tests read, and the last make check-all")
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
