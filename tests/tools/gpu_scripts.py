#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts for a machine with a GPU, on the emulated one and on programs that fail: gpu_scripts.py BUILD/tests"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path()
GOOD = "echo 'All tests passed (7 assertions in 3 test cases)'"


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)


class Tests(unittest.TestCase):
    """tests/gpu/run.sh"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()

    def run_script(self, *parts, **environment):
        done = subprocess.run([ROOT / "tests/gpu/run.sh", self.folder, *parts], capture_output=True, text=True,
                              env=dict(os.environ, OUT=str(self.folder), **environment))
        self.assertEqual(done.stderr, "")
        result = json.loads((self.folder / "gpu-tests/gpu-tests.json").read_text())
        self.assertEqual(done.stdout.splitlines()[-1], f"{result['passed']} passed, {result['failed']} failed")
        self.assertEqual(done.returncode, int(result["failed"] > 0))
        self.assertEqual(result["passed"], sum(part["passed"] for part in result["parts"]))
        self.assertEqual(result["failed"], sum(part["failed"] for part in result["parts"]))
        return {part["name"]: (part["passed"], part["failed"], part["note"]) for part in result["parts"]}

    def test_on_the_emulated_gpu(self):
        for name, program in (("coeus", "coeus_emulated"), ("tests/test_gpu", "test_cuda"),
                              ("tests/mpi_gpu", "mpi_cuda"), ("tests/test_gpu_program", "test_emulated")):
            link = self.folder / name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(BUILT / program)
        parts = self.run_script("device", "training", "meshes-2", COEUS_GPU_SECONDS="250")
        self.assertEqual(list(parts), ["device", "training", "meshes-2"])
        for name, (passed, failed, _) in parts.items():
            self.assertGreaterEqual(passed, 2, name)
            self.assertEqual(failed, 0, name)

    def test_what_fails(self):
        script(self.folder / "tests/test_gpu", f"""case $1 in
            "GPU kernels"*) echo 'test cases:   3 |   2 passed | 1 failed'; exit 1 ;;
            "a GPU"*) kill -SEGV $$ ;;
            *) echo 'No test cases matched'; esac""")
        script(self.folder / "tests/test_gpu_program", f"{GOOD}; exit 3")
        parts = self.run_script("kernels", "device", "training", "meshes-4", "steps-200")
        self.assertEqual(parts, {"kernels": (2, 1, "see kernels.log"), "device": (0, 1, "see device.log"),
                                 "training": (0, 1, "see training.log"), "meshes-4": (0, 1, "mpi_gpu is not there"),
                                 "steps-200": (3, 1, "see steps-200.log")})

    def test_what_is_left_out(self):
        script(self.folder / "tests/test_gpu_program", GOOD)
        parts = self.run_script("golden", "memcheck", COEUS_SHARED="/nowhere", PATH="/usr/bin:/bin", CUDA_HOME="/nowhere")
        self.assertEqual(parts["golden"], (0, 0, "left out: no reference files in /nowhere"))
        if not Path("/usr/local/cuda/bin/compute-sanitizer").exists():
            self.assertEqual(parts["memcheck"], (0, 0, "left out: there is no compute-sanitizer"))
        self.assertEqual(self.run_script("program", COEUS_GPU_SECONDS="0"), {"program": (0, 1, "no time was left")})

    def test_a_bundle(self):
        # whose programs are started by name, and whose mpirun and coeus the tests use
        script(self.folder / "run", 'here=${0%/*}; program=$1; shift; exec "$here/bin/$program" "$@"')
        script(self.folder / "mpirun", 'while [ "${1##*/}" != run ]; do shift; done; echo bundle; exec "$@"')
        script(self.folder / "bin/mpi_gpu", GOOD)
        script(self.folder / "bin/test_gpu_program",
               f'[ "$COEUS_TEST_PROGRAM" = "{self.folder}/coeus" ] && [ "$(command -v mpirun)" = "{self.folder}/mpirun" ]'
               f" && {GOOD}")
        parts = self.run_script("meshes-8", "program")
        self.assertEqual(parts, {"meshes-8": (3, 0, ""), "program": (3, 0, "")})
        self.assertIn("bundle", (self.folder / "gpu-tests/meshes-8.log").read_text())

    def test_every_part(self):
        # without arguments: each that the head of the script promises
        for program in ("test_gpu", "mpi_gpu", "test_gpu_program"):
            script(self.folder / "tests" / program, GOOD)
        golden = self.folder / "shared/golden/models"
        golden.mkdir(parents=True)
        script(self.folder / "tools/compute-sanitizer", 'while [ "${1##*/}" != test_gpu ]; do shift; done; exec "$@"')
        script(self.folder / "tools/mpirun", 'while [ "${1##*/}" != mpi_gpu ]; do shift; done; exec "$@"')
        parts = self.run_script(COEUS_SHARED=str(self.folder / "shared"),
                                PATH=f"{self.folder / 'tools'}:{os.environ['PATH']}")
        self.assertGreaterEqual(len(parts), 11)
        for name, part in parts.items():
            self.assertEqual(part, (3, 0, ""), name)


if __name__ == "__main__":
    BUILT = Path(sys.argv.pop(1)).resolve()
    unittest.main()
