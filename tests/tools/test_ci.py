# SPDX-License-Identifier: Apache-2.0
"""Tests of .ci/run, with scripts in the place of make and of the tools that decide what it runs."""
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = "100% tests passed, 0 tests failed out of 5"
MAKE = """echo "make $*, $COEUS_REACH$COEUS_CHECK_ALL$COEUS_PARTS" >>calls
[ -z "$SLOW" ] || echo $(($(cat clock) + SLOW)) >clock
case "$*" in
    test) echo "%s" ;;
    test-programs*) [ -z "$HITS" ] || cp hits "$CCACHE_STATSLOG"; i=0
        while [ $((i += 1)) -le $BUILT ]; do echo "[$i/$BUILT] Building CXX object $i.o"; done ;;
    cuda*) echo "${CUDA_SAYS:-skipped: no disassembler}" ;;
esac
[ "$1" != "$FAILS" ]
""" % SUMMARY
REACH = """echo "reach $*, $COEUS_CHECK_ALL" >>calls
[ "$1" != "$CRASHES" ] || exit 1
case "$*" in
    kernels) [ -n "$KERNELS" ] || exit 3 ;;
    cuda) [ -n "$CUDA" ] || exit 3 ;;
    state) echo a-commit ;;
    "folders --drawn") printf 'io\\ndata\\nplan\\n' ;;
    folders) printf '%b' "$FOLDERS" ;;
    seed) echo 7 ;;
    report*) echo "left out: 3 tests" ;;
esac
"""
CCACHE = """echo "  Hits: $HITS / $BUILT (x)"
"""
OBJECTS = 100


class Ci(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/run", self.folder / ".ci/run")
        (self.folder / "tools").mkdir()
        (self.folder / "bin").mkdir()
        (self.folder / "hits").write_text("a line\n")
        (self.folder / "clock").write_text("0\n")
        for name, text in (("bin/make", MAKE), ("bin/ccache", CCACHE), ("tools/reach.py", REACH), ("tools/deps.sh", "false"),
                           ("tools/find_nvcc.sh", "echo nvcc"), ("bin/date", "cat clock"),
                           ("bin/timeout", "echo \"timeout $3\" >>calls; shift 3; exec \"$@\"")):
            (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / name).chmod(0o755)
        (self.folder / "tools/skipped.py").write_text('print("skipped: 2 tests")\n')
        # so that nothing is installed
        for name in ("cuda", "tensorboard"):
            python = self.folder / f"build/venv-{name}/bin/python"
            python.parent.mkdir(parents=True)
            python.touch(mode=0o755)
        (self.folder / "tools/deps.sh").write_text("#!/bin/sh\n")
        (self.folder / "build/build.ninja").write_text("build a.o: CXX_COMPILER a.cpp\n  FLAGS = -O\n" * OBJECTS)

    def run_ci(self, *arguments, **environment):
        """(exit code, output, calls)"""
        usual = {"HITS": "95", "FOLDERS": "io\\n", "COEUS_CHECK_ALL": "", "COEUS_PARTS": "", "SLOW": "", "BUILT": "100"}
        done = subprocess.run([self.folder / ".ci/run", *arguments], capture_output=True, text=True, cwd="/",
                              env={**os.environ, **usual, **environment, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout, (self.folder / "calls").read_text()

    def test_green(self):
        code, said, calls = self.run_ci()
        self.assertEqual(code, 0, said)
        self.assertEqual(said.splitlines()[-3:], ["left out: 3 tests", "skipped: 2 tests", SUMMARY])
        self.assertIn("compiler cache:   Hits: 95 / 100", said)
        self.assertIn("left out: make cuda: the change reaches no code for GPUs", said)
        for part in ("make lint", "programs of the tests", "make test", "make cuda", "make sanitize"):
            self.assertRegex(said, f"\n  {part}: \\d+ s, \\d+ s of processors\n")
        self.assertIn("make test-programs TEST_PROGRAMS=coeus_tests, 1\n", calls)
        self.assertIn("make sanitize SANITIZE_SEED=7 SANITIZE_FOLDERS=io data plan , 1\n", calls)
        self.assertIn("reach record build short a-commit,", calls)
        self.assertNotIn("make cuda", calls)

    def test_a_part_that_fails_stops_no_other(self):
        for part, name in (("lint", "make lint"), ("test", "make test"), ("sanitize", "make sanitize"),
                           ("test-programs", "programs of the tests"), ("cuda", "make cuda")):
            (self.folder / "calls").write_text("")
            code, said, calls = self.run_ci(FAILS=part, CUDA="1")
            self.assertEqual(code, 1)
            self.assertIn(f"FAILED: '{name}'\n", said)
            self.assertEqual(said.splitlines()[-1], SUMMARY)
            for call in ("lint", "test-programs", "test,", "cuda", "sanitize"):
                self.assertIn(f"make {call}", calls)
            self.assertNotIn("reach record", calls)

    def test_what_the_change_reaches(self):
        _, said, calls = self.run_ci(KERNELS="1", CUDA="1")
        self.assertIn("make test-programs TEST_PROGRAMS=coeus_tests coeus_kernel_tests,", calls)
        self.assertIn("make cuda COEUS_LIBRARIES_OF=build,", calls)
        self.assertNotIn("cuda-matrix", calls)
        self.assertIn("\nskipped: no disassembler\n", said[said.index("times:"):])

    def test_code_for_gpus_of_which_nothing_is_skipped(self):
        code, said, calls = self.run_ci(KERNELS="1", CUDA="1", CUDA_SAYS="578 kernels are within the limits")
        self.assertEqual(code, 0, said)
        self.assertIn("make cuda COEUS_LIBRARIES_OF=build,", calls)
        self.assertNotIn("skipped: no disassembler", said)

    def test_all(self):
        code, _, calls = self.run_ci("all", KERNELS="1", CUDA="1")
        self.assertEqual(code, 0)
        self.assertIn("make test, 11\n", calls)
        self.assertIn("make cuda-matrix GPUS=89 100a 120, 11\n", calls)
        self.assertIn("make sanitize, 11\n", calls)
        self.assertIn("reach record build all a-commit, 1", calls)

    def test_a_cold_cache(self):
        for hits in ("19", ""):  # without hits, there is no cache
            (self.folder / "calls").write_text("")
            code, said, calls = self.run_ci(HITS=hits)
            self.assertEqual(code, 0)
            self.assertIn("make test, 12\n", calls)
            self.assertIn("SANITIZE_FOLDERS=io , 12\n", calls)
            self.assertIn("left out: sanitizers of folders that the change does not reach, since most objects had to be compiled\n",
                          said)
        # the cache had a fifth of them, or the folder had most of them already
        for hits, built in (("20", "100"), ("", "80"), ("", "0")):
            (self.folder / "calls").write_text("")
            _, _, calls = self.run_ci(HITS=hits, BUILT=built)
            self.assertIn("make test, 1\n", calls)

    def test_no_folder_is_reached(self):
        code, said, calls = self.run_ci(HITS="0", FOLDERS="")
        self.assertEqual(code, 0)
        self.assertNotIn("make sanitize", calls)
        self.assertIn("left out: make sanitize: the change reaches no folder of tests/unit\n", said)

    def test_a_slow_machine(self):
        # three calls of make come before the sanitizers
        _, _, calls = self.run_ci(SLOW="1000")
        self.assertIn("SANITIZE_FOLDERS=io data plan ,", calls)
        # each part is bounded, so that the run ends before its limit
        self.assertEqual([line for line in calls.splitlines() if line.startswith("timeout")],
                         ["timeout 5100", "timeout 4100", "timeout 3100", "timeout 2100"])
        self.assertIn("reach record build short a-commit,", calls)
        for seconds, said_so in (("1100", "sanitizers of folders that the change does not reach, since 3300 s have passed"),
                                 ("1650", "make sanitize: 4950 s have passed, and the limit is 5400 s")):
            (self.folder / "calls").write_text("")
            (self.folder / "clock").write_text("0\n")
            code, said, calls = self.run_ci(SLOW=seconds)
            self.assertEqual(code, 0)
            self.assertIn(f"left out: {said_so}\n", said)
            self.assertEqual("SANITIZE_FOLDERS=io ," in calls, seconds == "1100")
            self.assertEqual("make sanitize" in calls, seconds == "1100")
            # those that the change reaches are the next run's
            self.assertIn("reach record build short a-commit" + (", " if seconds == "1100" else " sanitizers, "), calls)

    def test_sanitizers_that_reach_the_limit_are_left_out_but_not_their_failures(self):
        for said, failed in (("1/9 Test #1 ... Passed", False), ("1/9 Test #1 ...***Failed", True), ("x.o: FAILED", True)):
            (self.folder / "calls").write_text("")
            # the real program, which ends what make has started too
            (self.folder / "bin/timeout").write_text(
                "#!/bin/sh\nshift 3\ncase \"$2\" in sanitize) exec /usr/bin/timeout -k 1 1 \"$@\" ;; esac\nexec \"$@\"\n")
            (self.folder / "bin/make").write_text(
                f"#!/bin/sh\n{MAKE}\ncase $1 in sanitize) echo '{said}'; sh -c 'sleep 600; echo late >>calls' ;; esac\n")
            start = time.monotonic()
            code, printed, calls = self.run_ci(FAILS="nothing")
            self.assertLess(time.monotonic() - start, 500)
            self.assertEqual(code, int(failed))
            self.assertEqual("left out: the rest of make sanitize: the limit is 5400 s\n" in printed, not failed)
            self.assertEqual("reach record build short a-commit sanitizers," in calls, not failed)
            self.assertEqual("reach record" in calls, not failed)

    def test_a_part_that_reaches_the_limit_fails(self):
        (self.folder / "bin/timeout").write_text(
            "#!/bin/sh\nshift 3\ncase \"$2\" in test) exit 124 ;; esac\nexec \"$@\"\n")
        code, said, _ = self.run_ci()
        self.assertEqual(code, 1)
        self.assertIn("FAILED: 'make test'\n", said)
        self.assertEqual(said.splitlines()[-1], "no test was run")

    def test_tools_that_fail_fail_the_run(self):
        for verb, failed in (("kernels", "tools/reach.py kernels"), ("cuda", "tools/reach.py cuda"), ("folders", "make sanitize"),
                             ("summary", "tools/reach.py summary")):
            (self.folder / "calls").write_text("")
            code, said, calls = self.run_ci(CRASHES=verb)
            self.assertEqual(code, 1)
            self.assertIn(f"'{failed}'", said)
            self.assertNotIn("reach record", calls)

    def test_without_a_compiler_for_gpus(self):
        (self.folder / "tools/find_nvcc.sh").write_text("#!/bin/sh\necho there is no nvcc\nexit 1\n")
        code, said, calls = self.run_ci(CUDA="1")
        self.assertEqual(code, 0)
        self.assertIn("skipped: make cuda: there is no nvcc\n", said)
        self.assertNotIn("make cuda", calls)
        self.assertIn("reach record build short a-commit cuda,", calls)

    def test_the_verbs_of_make(self):
        text = (ROOT / "Makefile").read_text()
        self.assertRegex(text, r"(?m)^check:\n\t@\.ci/run$")
        self.assertRegex(text, r"(?m)^check-all:\n\t@\.ci/run all$")
        done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
        for verb in ("test", "check", "check-all", "soak"):
            self.assertTrue(re.search(f"^make {verb} ", done.stdout, re.MULTILINE), verb)


if __name__ == "__main__":
    unittest.main()
