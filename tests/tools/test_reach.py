# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/reach.py."""
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import budget  # noqa: E402
import reach  # noqa: E402
from test_budget import read  # noqa: E402

BLOCKS = """# a comment

tests: (program|slurm):
files: inputs doc/decks.md
files: jobscripts
built: coeus

tests: headers: each
files: include
"""
TESTS = {"program:a": ({"tests/test_program"}, set()), "unit/io:a": ({"tests/test_io"}, set()),
         "mpi/b: 2 ranks": ({"tests/mpi_b"}, {"tests/support/mpirun.sh"}), "headers: each compiles": (set(), {"tools/check_headers.py"}),
         "an unknown script": (set(), set())}


class Repository(unittest.TestCase):
    """A repository of three commits, the first of which was checked."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.green = Path(folder.name) / "root", Path(folder.name) / "green"
        self.root.mkdir()
        self.green.mkdir()
        # of the one who runs these tests, nothing counts
        self.enterContext(mock.patch.dict(os.environ, {"COEUS_BASE": "", "GIT_CONFIG_GLOBAL": "/dev/null", "SEED": ""}))
        self.git("init", "-q")
        self.commits = [self.commit("a.txt", str(number)) for number in range(3)]

    def git(self, *arguments):
        done = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *arguments],
                              cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, name, text):
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-qm", name)
        return self.git("rev-parse", "HEAD")

    def checked(self, line):
        (self.root / "tests").mkdir(exist_ok=True)
        (self.root / reach.CHECKED).write_text(f"# a comment\n{line}\n")


class Base(Repository):
    def base(self):
        return reach.base(self.root, self.green)[0]

    def test_the_newest_green_commit(self):
        self.assertIsNone(self.base())
        for number in (0, 1):
            (self.green / self.commits[number]).touch()
            self.assertEqual(self.base(), self.commits[number])

    def test_a_commit_is_not_its_own_base(self):
        for commit in self.commits:
            (self.green / commit).touch()
        self.assertEqual(self.base(), self.commits[1])
        (self.root / "new.txt").touch()  # but that of changes to it
        self.assertEqual(self.base(), self.commits[2])

    def test_the_last_check_of_all(self):
        self.checked(f"{self.commits[0]} 2026-01-01")
        self.assertEqual(self.base(), self.commits[0])
        (self.green / self.commits[1]).touch()
        self.assertEqual(self.base(), self.commits[1])
        self.checked("0123456789 2026-01-01")
        (self.green / self.commits[1]).unlink()
        self.assertIsNone(self.base())

    def test_a_base_that_is_given(self):
        with mock.patch.dict(os.environ, {"COEUS_BASE": self.commits[0][:9]}):
            self.assertEqual(self.base(), self.commits[0])
        with mock.patch.dict(os.environ, {"COEUS_BASE": "nothing"}), \
                self.assertRaisesRegex(SystemExit, "COEUS_BASE = nothing: there is no such commit"):
            self.base()

    def test_without_git(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(reach.base(Path(folder), self.green)[0], None)
            self.assertEqual(reach.seed(Path(folder)), 0)

    def test_changes(self):
        self.commit("folder/b.txt", "1")
        (self.root / "new.txt").touch()
        (self.root / "a.txt").write_text("other")
        self.assertEqual(reach.changed_since(self.commits[2], self.root), {"folder/b.txt", "new.txt", "a.txt"})
        (self.root / "a.txt").unlink()
        self.assertIn("a.txt", reach.changed_since(self.commits[2], self.root))

    def test_the_seed_is_the_day_of_the_commit(self):
        os.environ.pop("SEED")
        with mock.patch.dict(os.environ, {"GIT_COMMITTER_DATE": "@86400005 +0000"}):
            self.commit("b.txt", "1")
        self.assertEqual(reach.seed(self.root), 1000)
        with mock.patch.dict(os.environ, {"SEED": "7"}):
            self.assertEqual(reach.seed(self.root), 7)


class Record(Repository):
    def record(self, which, commit, *missing):
        said = io.StringIO()
        with mock.patch.object(reach, "ROOT", self.root), contextlib.redirect_stdout(said), \
                mock.patch.object(reach, "git", lambda *a, root=self.root: self.git(*a)), \
                mock.patch.object(reach, "is_clean", lambda: self.git("status", "--porcelain") == ""), \
                mock.patch.object(reach.caches, "folder", lambda name: self.green), \
                mock.patch.object(reach, "programs_of", lambda *a: {"coeus": "its bytes"}), \
                mock.patch.object(reach, "libraries_of", lambda build: "libraries"), \
                mock.patch.object(reach, "reaches", lambda patterns: True):
            reach.record("build", which, commit, list(missing))
        return said.getvalue(), sorted(file.name for file in self.green.iterdir())

    def setUp(self):
        super().setUp()
        (self.root / "tests").mkdir()
        (self.root / reach.REACH).write_text("")
        self.checked(f"{self.commits[0]} 2026-01-01")
        self.git("add", "-A")
        self.git("commit", "-qm", "lists")
        self.head = self.git("rev-parse", "HEAD")

    def test_a_green_commit(self):
        self.assertEqual(self.record("short", self.head, "cuda"), ("", [self.head]))
        with mock.patch.object(reach.caches, "folder", lambda name: self.green):
            found = reach.recorded(self.head)
        self.assertEqual((found["programs"], found["missing"]), ({"coeus": "its bytes"}, ["cuda"]))
        self.assertEqual(found["tools"], reach.versions())

    def test_a_run_that_was_not_of_one_commit(self):
        for commit in ("", self.commits[1]):  # of changes; or something was committed while it ran
            said, known = self.record("all", commit)
            self.assertIn("this run is not recorded", said)
            self.assertEqual(known, [])
        with mock.patch.dict(os.environ, {"COEUS_BASE": "HEAD"}):
            self.assertEqual(self.record("short", self.head)[1], [])
        (self.root / "new.txt").touch()
        self.assertEqual(self.record("short", self.head)[1], [])
        self.assertEqual(reach.checked_commit(self.root), self.commits[0])

    def test_all(self):
        said, _ = self.record("all", self.head, "cuda")
        self.assertIn("is not written, since cuda did not run", said)
        self.assertEqual(reach.checked_commit(self.root), self.commits[0])
        self.record("all", self.head)
        self.assertEqual(reach.checked_commit(self.root), self.head)

    def test_what_a_base_lacked_is_reached(self):
        with mock.patch.object(reach, "the_base", lambda: (self.head, "")), mock.patch.object(reach, "changed", lambda: frozenset()), \
                mock.patch.object(reach, "recorded", lambda commit: {"missing": ["cuda"]}):
            self.assertTrue(reach.lacked("cuda"))
            self.assertFalse(reach.lacked("sanitizers"))


class Checked(Repository):
    def findings(self):
        errors, warnings = reach.checked_findings(self.root)
        return "\n".join(errors), "\n".join(warnings)

    def test_a_recent_check(self):
        self.checked(f"{self.commits[0]} 2026-01-01")
        self.assertEqual(self.findings(), ("", ""))

    def test_an_old_check(self):
        self.checked(f"{self.commits[0]} 2026-01-01")
        with mock.patch.object(reach, "WARNED_COMMITS", 1):
            errors, warnings = self.findings()
            self.assertEqual(errors, "")
            self.assertIn("the last make check-all is 2 commits old", warnings)
        with mock.patch.object(reach, "MOST_COMMITS", 1):
            errors, _ = self.findings()
            self.assertIn("2 commits old, and 1 are the most; run `make check-all`", errors)
            self.assertIn(self.commits[2], errors)

    def test_an_unknown_commit(self):
        self.checked("0123456789abcdef 2026-01-01")
        errors, _ = self.findings()
        self.assertIn("0123456789abcdef is not an earlier commit of this history; run `make check-all`, which writes the line", errors)
        self.assertIn(self.commits[2], errors)

    def test_no_commit(self):
        (self.root / "tests").mkdir()
        self.assertIn("names no commit", self.findings()[0])

    def test_without_history(self):
        with tempfile.TemporaryDirectory() as folder:
            errors, warnings = reach.checked_findings(Path(folder))
            self.assertEqual(errors, [])
            self.assertIn("without the whole history", warnings[0])

    def test_it_is_written(self):
        self.checked(f"{self.commits[0]} 2026-01-01")
        said = io.StringIO()
        with mock.patch.object(reach, "ROOT", self.root), contextlib.redirect_stdout(said), \
                mock.patch.object(reach, "git", lambda *a, root=self.root: self.git(*a)):
            reach.write_checked(self.commits[2])
        self.assertIn("commit it", said.getvalue())
        self.assertEqual(reach.checked_commit(self.root), self.commits[2])
        self.assertTrue((self.root / reach.CHECKED).read_text().startswith("# a comment\n"))


class Sources(unittest.TestCase):
    FILES = {"include/coeus/a/a.hpp": "", "include/coeus/b/b.hpp": '#include "coeus/a/a.hpp"\n', "src/a/inner.hpp": "",
             "src/a/a.cpp": '#include "inner.hpp"\n#include "coeus/a/a.hpp"\n', "src/b/b.cpp": '#include "coeus/b/b.hpp"\n',
             "src/c/c.cpp": "#include <vector>\n", "src/d/e/f.cu": '#include "a/inner.hpp"\n',
             "tests/unit/b/b.cpp": '  #  include "coeus/b/b.hpp"\n', "tests/s/x.h": "", "tests/t/y.cpp": '#include "x.h"\n'}

    def reached(self, *changes):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in self.FILES.items():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_text(text)
            return reach.Includes(map(Path, self.FILES), Path(folder)).reached(changes)

    def test_what_includes_a_change_is_reached(self):
        self.assertEqual(self.reached("src/c/c.cpp", "doc/x.md"), {"src/c/c.cpp"})
        self.assertEqual(self.reached("src/a/inner.hpp"), {"src/a/inner.hpp", "src/a/a.cpp", "src/d/e/f.cu"})
        self.assertEqual(self.reached("include/coeus/a/a.hpp"), {"include/coeus/a/a.hpp", "include/coeus/b/b.hpp", "src/a/a.cpp",
                                                                 "src/b/b.cpp", "tests/unit/b/b.cpp"})
        # a folder of headers that only the build knows
        self.assertEqual(self.reached("tests/s/x.h"), {"tests/s/x.h", "tests/t/y.cpp"})

    def test_folders(self):
        self.assertEqual(reach.folders({"src/io/a.cpp", "include/coeus/data/x.hpp", "tests/unit/plan/y.cpp", "doc/x.md"}),
                         ["data", "io", "plan"])
        self.assertEqual(reach.folders({"src/kernels/cuda/a.cu"}), ["cuda", "kernels"])
        self.assertEqual(reach.folders(None), reach.folders({f"src/{name}/a.cpp" for name in reach.folders(None)} | {"tests/gpu/a.cpp"}))

    def test_files_that_are_no_sources_may_reach_code_for_gpus(self):
        for path, patterns in (("tests/gpu/traffic.txt", reach.KERNELS), ("tests/gpu/kernel_resources.txt", reach.CUDA),
                               ("tools/kernel_resources.py", reach.CUDA), ("tools/keep_ptxas.sh", reach.CUDA),
                               ("src/kernels/cuda/gone.cu", reach.CUDA)):
            with mock.patch.object(reach, "reached_sources", lambda: frozenset()), \
                    mock.patch.object(reach, "changed", lambda: frozenset({path})):
                self.assertTrue(reach.reaches(patterns), path)
        with mock.patch.object(reach, "reached_sources", lambda: frozenset({"src/io/a.cpp"})), \
                mock.patch.object(reach, "changed", lambda: frozenset({"src/io/a.cpp"})):
            self.assertFalse(reach.reaches(reach.CUDA))
        with mock.patch.object(reach, "reached_sources", lambda: None):
            self.assertTrue(reach.reaches(reach.CUDA))

    def test_what_decides_reaches_everything(self):
        for path in ("CMakeLists.txt", "tests/unit/CMakeLists.txt", "cmake/options.cmake", "tools/reach.py", ".ci/run"):
            self.assertTrue(reach.reaches_everything({path, "a.txt"}), path)
        self.assertFalse(reach.reaches_everything({"src/a.cpp", "doc/CMakeLists.md", "tests/budget.txt"}))


class Tests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        (self.build / "tests").mkdir()
        for name in ("coeus", "tests/test_program", "tests/test_io", "tests/mpi_b"):
            (self.build / name).write_text(name)
        self.enterContext(mock.patch.object(reach, "libraries_of", lambda build: "the same"))
        self.before = {"libraries": "the same", "programs": {name: reach.bytes_of.__wrapped__(self.build / name) for name in
                                                             ("coeus", "tests/test_program", "tests/test_io", "tests/mpi_b")}}
        self.listed = reach.blocks(BLOCKS)
        reach.bytes_of.cache_clear()

    def reached(self, *changes, before=True):
        return reach.reached_tests(TESTS, self.build, self.before if before else None, set(changes), self.listed)

    def test_nothing_changed(self):
        self.assertEqual(self.reached(), {"an unknown script"})

    def test_programs(self):
        (self.build / "tests/test_io").write_text("other")
        self.assertEqual(self.reached(), {"an unknown script", "unit/io:a"})

    def test_a_program_that_a_test_starts(self):
        (self.build / "coeus").write_text("other")
        self.assertEqual(self.reached(), {"an unknown script", "program:a"})

    def test_a_program_that_the_base_did_not_have(self):
        del self.before["programs"]["tests/test_io"]
        self.assertEqual(self.reached(), {"an unknown script", "unit/io:a"})
        (self.build / "tests/mpi_b").unlink()
        self.assertIn("mpi/b: 2 ranks", self.reached())

    def test_files(self):
        self.assertEqual(self.reached("inputs/a.toml"), {"an unknown script", "program:a"})
        self.assertEqual(self.reached("inputs_of_others/a.toml"), {"an unknown script"})
        self.assertEqual(self.reached("include/coeus/a.hpp"), {"an unknown script", "headers: each compiles"})
        self.assertEqual(self.reached("tests/support/mpirun.sh"), {"an unknown script", "mpi/b: 2 ranks"})

    def test_without_a_base_or_with_other_libraries_all_are_reached(self):
        self.assertEqual(self.reached(before=False), set(TESTS))
        self.before["libraries"] = "others"
        self.assertEqual(self.reached(), set(TESTS))

    def test_a_line_of_another_form(self):
        for line in ("folders: a", "tests", "files: a"):
            with self.assertRaisesRegex(SystemExit, r"tests/reach.txt:\d+: a line is \"tests: REGULAR EXPRESSION\""):
                reach.blocks("tests: a\n\n" + line if line == "files: a" else "tests: a\n" + line)

    def test_draws(self):
        names = [f"test {i}" for i in range(300)]
        for shares in (1, 2, 3, 4):
            days = [{name for name in names if reach.draws(name, 20000 + day, shares)} for day in range(60)]
            self.assertEqual(set().union(*days), set(names))
            self.assertTrue(all(300 / shares * 0.6 < len(day) <= 300 / shares * 1.4 for day in days))
            # a part of cases goes round: on the days of a test, it is at each of its places
            for name in names[:20]:
                self.assertEqual({day % shares for day in range(400) if reach.draws(name, 20000 + day, shares)},
                                 set(range(shares)))
        self.assertFalse(any(reach.draws(name, 5, 0) for name in names))

    def test_what_is_left_out(self):
        lines = tuple(read("total 9\nrest 1\n[a] 8\n1 1 0 a\n1 1 1/2 b*\n1 1/2 0 c\n1 1 1 d\n").lines)
        tests = {name: (set(), set()) for name in ("a", "b1", "b2", "b3", "b4", "c", "d", "cheap")}
        for day in range(2):
            none, every = reach.left_out(tests, set(), lines, day), reach.left_out(tests, set(tests), lines, day)
            self.assertEqual(none["a"], "not reached")
            self.assertEqual(none["c"], "not reached")
            self.assertFalse({"d", "cheap"} & (none.keys() | every.keys()))
            self.assertEqual(every.keys(), {"c"} if not reach.draws("c", day, 2) else set())
            self.assertEqual({name for name in none if name.startswith("b")},
                             {name for name in tests if name.startswith("b") and not reach.draws(name, day, 2)})

    def test_programs_that_are_built_apart(self):
        tests = {"unit/kernels_v3:a": ({"tests/test_kernels_v3"}, set()), "test_traffic_NOT_BUILT-b12d07c": (set(), set())}
        self.assertEqual(set(reach.left_out(tests, set(), (), 0)), set(tests))
        self.assertEqual(reach.left_out(tests, set(tests), (), 0), {})


class Lists(unittest.TestCase):
    def test_each_path_exists(self):
        for block in reach.blocks((ROOT / reach.REACH).read_text()):
            for path in block.files:
                self.assertTrue((ROOT / path).exists(), path)

    def test_a_path_that_does_not_exist(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tests").mkdir()
            (Path(folder) / reach.REACH).write_text("tests: a\nfiles: gone.txt tests\n")
            self.assertEqual(reach.findings(Path(folder)),
                             ["tests/reach.txt:1: there is no gone.txt; take it out of the line \"files:\", or write its new name"])

    def test_a_block_without_tests_and_a_file_that_is_not_built(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "coeus").touch()
            blocks = reach.blocks("tests: a\nbuilt: coeus\n\ntests: b\nbuilt: gone.so\n")
            self.assertEqual(reach.findings_of_build(blocks, ["a:1"], Path(folder)),
                             ["tests/reach.txt:4: no test begins with \"b\"; write the test's new name, or take the block out",
                              "tests/reach.txt:4: the build has no gone.so; take it out of the line \"built:\", or write its new "
                              "name"])

    def test_more_names_than_an_expression_holds(self):
        with self.assertRaisesRegex(SystemExit, "700 names of tests are more than CMake takes"):
            reach.expression([f"{i} " + 100 * "a" for i in range(700)])

    def test_what_tests_read_is_listed(self):
        """Each path that a test makes with paths::source() is in a block of its folder."""
        blocks = reach.blocks((ROOT / reach.REACH).read_text())
        for file in sorted((ROOT / "tests").rglob("*.cpp")):
            folder = str(file.parent.relative_to(ROOT / "tests"))
            if folder == "support":  # of all tests
                continue
            text = re.sub(r"\s+", " ", file.read_text())
            for path in re.findall(r'paths::source\(\)\)? ?[+/] ?"/?([\w./]+)', text):
                listed = [listed for block in blocks if block.fits(f"{folder}:a") for listed in block.files]
                self.assertTrue(any(path.rstrip("/") == known or path.startswith(known + "/") for known in listed),
                                f"{file.name}: {path}: tests/reach.txt does not name it for {folder}")
