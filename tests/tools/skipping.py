# SPDX-License-Identifier: Apache-2.0
"""Tests the effect of a skipped case on the exit code of its program, on ctest and on the output of tools/test.sh:
skipping.py PROGRAM MPI_PROGRAM, both built from tests/skipping/cases.cpp"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import unittests

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = MPI_PROGRAM = ""
MPIRUN = []


def run(command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, **environment))
    return done.returncode, done.stdout


class Program(unittest.TestCase):
    def code(self, *cases, **environment):
        return run([PROGRAM, ",".join(cases)], **environment)[0]

    def test_all_skipped(self):
        code, said = run([PROGRAM, "skips"])
        self.assertEqual(code, 77)
        self.assertIn("skipped: the moon is not full\n", said)
        self.assertEqual(self.code("skips", "skips as well"), 77)

    def test_some_skipped(self):
        self.assertEqual(self.code("skips", "passes"), 0)
        self.assertEqual(self.code("passes", "skips"), 0)
        self.assertEqual(self.code("passes"), 0)

    def test_with_one_of_its_values(self):
        self.assertEqual(self.code("skips with one of its values"), 77)

    def test_a_failure_wins(self):
        for case in ("fails and then skips", "skips and then fails", "skips and then throws"):
            for cases in ([case], [case, "skips"], [case, "passes"]):
                self.assertNotIn(self.code(*cases), (0, 77), cases)

    def test_a_count_of_failures_is_not_the_code(self):
        for cases in (["fails exactly 77 times"],
                      ["fails exactly 77 times", "skips"]):
            self.assertNotIn(self.code(*cases), (0, 77), cases)

    def test_no_case(self):
        for cases in (["no such case"], ["skips", "no such case"]):
            self.assertNotIn(self.code(*cases), (0, 77), cases)

    def test_a_case_without_a_check(self):
        self.assertEqual(run([PROGRAM, "skips", "-w", "NoAssertions"])[0], 77)

    def test_tools_that_a_complete_run_requires(self):
        with tempfile.TemporaryDirectory() as folder:
            for case in ("needs a tool that complete runs require", "needs reference files"):
                for value, expected in (("", True), ("0", True), ("1", False)):
                    code = self.code(case, COEUS_SHARED=f"{folder}/none", COEUS_REQUIRE_GOLDEN=value)
                    self.assertEqual(code == 77, expected, (case, value, code))
                    self.assertNotEqual(code, 0)


class Ranks(unittest.TestCase):
    def code(self, *cases):
        return run(MPIRUN + [MPI_PROGRAM, ",".join(cases)])[0]

    def test_ranks(self):
        code, said = run(MPIRUN + [MPI_PROGRAM, "skips,skips as well"])
        self.assertEqual(code, 77)
        self.assertEqual(said.count("skipped: the moon is not full\n"), 1)
        self.assertEqual(self.code("skips", "passes"), 0)
        self.assertEqual(self.code("skips on rank 0 only"), 0)
        self.assertNotIn(self.code("skips", "skips and then fails"), (0, 77))

    # the other rank waits for a message of this one, so a rank that does not end it keeps this test until its limit
    def test_a_rank_that_leaves_a_case_ends_all(self):
        for case, rank, text in (("throws on rank 0 only", 0, "an error on purpose"),
                                 ("throws on rank 1 only", 1, "an error on purpose"),
                                 ("throws in a check on rank 1 only", 1, "an error on purpose"),
                                 ("requires in vain on rank 1 only", 1, "77 == 0")):
            with self.subTest(case):
                code, said = run(MPIRUN + [MPI_PROGRAM, case])
                self.assertNotIn(code, (0, 77))
                self.assertIn(text, said)
                self.assertIn(f"rank {rank} has left this case, so all ranks end\n", said)
                self.assertEqual(said.count("rank 1:\n"), rank)
                self.assertIn(case, said)

    def test_a_rank_that_stays_in_its_case_ends_none(self):
        code, said = run(MPIRUN + [MPI_PROGRAM, "throws as expected on rank 1 only,passes"])
        self.assertEqual((code, said.count("has left")), (0, 0))
        code, said = run(MPIRUN + [MPI_PROGRAM, "fails on rank 1 only,passes"])
        self.assertNotIn(code, (0, 77))
        self.assertEqual(said.count("has left"), 0)
        self.assertIn("77 == 0", said)


class Run(unittest.TestCase):
    """tools/test.sh on a build folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_script(self, *tests, options=()):
        """Each test is a name followed by the words of a command."""
        text = ""
        for name, *command in tests:
            command = [shutil.which(command[0]), *command[1:]]
            words = " ".join(f'"{word}"' for word in command)
            text += f'add_test("{name}" {words})\nset_tests_properties("{name}" PROPERTIES SKIP_RETURN_CODE 77)\n'
        (self.folder / "CTestTestfile.cmake").write_text(text)
        return run([ROOT / "tools/test.sh", self.folder, *options])

    def test_counts(self):
        code, said = self.run_script(("a", PROGRAM, "skips"), ("b", PROGRAM, "skips as well"), ("c", PROGRAM, "passes"),
                                     ("d", PROGRAM, "skips"), ("e", PROGRAM, "skips,passes"))
        self.assertEqual(code, 0)
        self.assertTrue(said.endswith("""
skipped: 3 tests
     2 the moon is not full
     1 there is no wind
partly skipped: 1 more
     1 the moon is not full
"""), said)
        self.assertIn("100% tests passed, 0 tests failed out of 5", said)

    def test_ranks(self):
        code, said = self.run_script(("a", *MPIRUN, MPI_PROGRAM, "skips"), ("b", *MPIRUN, MPI_PROGRAM, "skips,passes"))
        self.assertEqual(code, 0)
        self.assertEqual(said.splitlines()[-4:], ["skipped: 1 test", "     1 the moon is not full",
                                                  "partly skipped: 1 more", "     1 the moon is not full"])

    def test_nothing_skipped(self):
        code, said = self.run_script(("a", PROGRAM, "passes"))
        self.assertEqual((code, said.splitlines()[-1]), (0, "skipped: 0 tests"))

    def test_without_a_reason(self):
        code, said = self.run_script(("a", "/bin/sh", "-c", "exit 77"))
        self.assertEqual((code, said.splitlines()[-2:]), (0, ["skipped: 1 test", "     1 no reason is given"]))

    def test_failures(self):
        code, said = self.run_script(("a", PROGRAM, "skips and then fails"), ("b", PROGRAM, "skips"))
        self.assertEqual(code, 8)  # ctest's own
        self.assertEqual(said.splitlines()[-2:], ["skipped: 1 test", "     1 the moon is not full"])

    def test_none_is_run(self):
        tests = [("a", PROGRAM, "skips")]
        self.run_script(*tests)
        code, said = self.run_script(*tests, options=["-N"])  # those of the last run are not reported again
        self.assertEqual(code, 0)
        self.assertNotIn("skipped: ", said)
        self.assertNotEqual(self.run_script(*tests, options=["-R", "nothing"])[0], 0)


class Python(unittest.TestCase):
    """tests/tools/unittests.py"""

    def run_tests(self, *tests):
        bodies = {"passes": "pass", "skips": "self.skipTest('there is no snake')", "fails": "self.fail()"}
        text = "import unittest\nclass A(unittest.TestCase):\n    pass\n"
        for test in tests:
            text += f"    def test_{test}(self):\n        {bodies[test]}\n"
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "test_a.py").write_text(text)
            return run([sys.executable, "-B", ROOT / "tests/tools/unittests.py", "discover", "-s", folder])

    def test_codes(self):
        self.assertEqual(self.run_tests("skips"), (77, "skipped: there is no snake\n"))
        self.assertEqual(self.run_tests("skips", "passes"), (0, "skipped: there is no snake\n"))
        self.assertEqual(self.run_tests("passes"), (0, ""))
        self.assertEqual(self.run_tests("skips", "fails")[0], 1)
        self.assertEqual(self.run_tests(), (1, "no test was found\n"))


if __name__ == "__main__":
    PROGRAM, MPI_PROGRAM = (os.path.abspath(program) for program in sys.argv[1:3])
    MPIRUN = [*sys.argv[3:], "-n", "2"]
    del sys.argv[1:]
    unittests.main()
