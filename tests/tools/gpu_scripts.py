#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the scripts for a machine with a GPU, with the emulated GPU and with programs that fail: gpu_scripts.py BUILD"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import unittests  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path()
GOOD = "echo 'All tests passed (7 assertions in 3 test cases)'"


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()

    def link_programs(self):
        """Makes a build folder with the programs of the emulated GPU."""
        for name, program in (("coeus", "tests/coeus_emulated"), ("tests/test_gpu", "tests/test_cuda"),
                              ("tests/mpi_gpu", "tests/mpi_cuda"), ("tests/test_gpu_program", "tests/test_emulated"),
                              ("bench/gpu_gemm", "bench/gpu_gemm"), ("CMakeCache.txt", "CMakeCache.txt")):
            link = self.folder / name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(BUILT / program)


class Tests(Script):
    """tests/gpu/run.sh"""

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
        self.link_programs()
        # far more than they take: another test covers parts that run out of time
        parts = self.run_script("device", "training", "meshes-2", COEUS_GPU_SECONDS="4700")
        self.assertEqual(list(parts), ["device", "training", "meshes-2"])
        for name, (passed, failed, _) in parts.items():
            self.assertGreaterEqual(passed, 2, name)
            self.assertEqual(failed, 0, name)

    def test_failures(self):
        script(self.folder / "tests/test_gpu", f"""case $1 in
            "GPU kernels"*) echo 'test cases:   3 |   2 passed | 1 failed'; exit 1 ;;
            "a GPU"*) kill -SEGV $$ ;;
            *) echo 'No test cases matched'; esac""")
        script(self.folder / "tests/test_gpu_program", f"{GOOD}; exit 3")
        parts = self.run_script("kernels", "device", "training", "meshes-4", "steps-200")
        self.assertEqual(parts, {"kernels": (2, 1, "see kernels.log"), "device": (0, 1, "see device.log"),
                                 "training": (0, 1, "see training.log"), "meshes-4": (0, 1, "there is no mpi_gpu"),
                                 "steps-200": (3, 1, "see steps-200.log")})

    def test_parts_left_out(self):
        script(self.folder / "tests/test_gpu_program", GOOD)
        parts = self.run_script("golden", COEUS_SHARED="/nowhere")
        self.assertEqual(parts["golden"], (0, 0, "left out: no reference files in /nowhere"))
        script(self.folder / "tests/test_gpu", GOOD)
        script(self.folder / "tools/compute-sanitizer", "echo '========= Error: Device not supported.'; exit 1")
        parts = self.run_script("racecheck", PATH=f"{self.folder / 'tools'}:{os.environ['PATH']}")
        self.assertEqual(parts, {"racecheck": (0, 0, "left out: compute-sanitizer does not support this device")})
        self.assertEqual(self.run_script("program", COEUS_GPU_SECONDS="0"), {"program": (0, 1, "no time was left")})

    @unittest.skipIf(Path("/usr/local/cuda/bin/compute-sanitizer").exists(),
                     "the script always finds the compute-sanitizer of /usr/local/cuda")
    def test_parts_left_out_without_a_sanitizer(self):
        parts = self.run_script("memcheck", PATH="/usr/bin:/bin", CUDA_HOME="/nowhere")
        self.assertEqual(parts["memcheck"], (0, 0, "left out: there is no compute-sanitizer"))

    def test_skipped_cases(self):
        script(self.folder / "tests/test_gpu", """case $1 in
            "GPU kernels"*) echo 'skipped: it says "no"'; echo 'All tests passed (1 assertion in 1 test case)'; exit 77 ;;
            *) echo 'skipped: there is no cuDNN'; echo 'All tests passed (7 assertions in 3 test cases)'; esac""")
        parts = self.run_script("kernels", "device")
        self.assertEqual(parts, {"kernels": (0, 0, "left out: it says 'no'"), "device": (2, 0, "1 skipped")})

    def test_a_bundle(self):
        # its programs are started by name, and the tests use its mpirun and coeus
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
        # without arguments the script runs every part
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
            expected = (0, 0, "left out: there are not two GPUs") if name == "nccl" else (3, 0, "")
            self.assertEqual(part, expected, name)


class Bench(Script):
    """bench/gpu.sh"""

    def run_script(self, *cases, **environment):
        done = subprocess.run([ROOT / "bench/gpu.sh", self.folder, *cases], capture_output=True, text=True,
                              env=dict(os.environ, OUT=str(self.folder), COEUS_GPU_BENCH="tiny",
                                       **{"COEUS_GPU_SECONDS": "4700"} | environment))
        self.assertEqual(done.stderr, "")
        report = json.loads((self.folder / "gpu-bench/gpu-bench.json").read_text())
        self.assertIn((self.folder / "gpu-bench/gpu-bench.md").read_text(), done.stdout)
        self.assertFalse((self.folder / "gpu-bench/work").exists())
        return done, report

    def stand_in_of_torch(self, flops_per_token):
        """A stand-in for PyTorch with which every program prints fixed figures instead of computing."""
        figures = {"tps": 2.0, "memory_gib": None, "batch": 4, "recompute": False, "flops_per_token": flops_per_token}
        (self.folder / "torch.py").write_text(f"""import json, sys
if "torch_llama" in sys.argv[0]:
    print(json.dumps({figures}))
    sys.exit(0)
""")
        return str(self.folder)

    def test_on_the_emulated_gpu(self):
        self.link_programs()
        # 6 for each weight (the head is tied), 12 per layer for each query and key
        weights = 320 * 64 + 2 * (64 * 64 * 3 + 3 * 64 * 96 + 2 * 64) + 64
        flops = 6 * weights + 12 * 2 * 64 * 32
        done, report = self.run_script("tiny-32", PYTHONPATH=self.stand_in_of_torch(flops))
        self.assertEqual(done.returncode, 0)
        (case,) = report["cases"]
        self.assertEqual((case["case"], case["batch"], case["saving"], case["note"]), ("tiny-32", 4, "none", ""))
        self.assertEqual([len(case["coeus"]), len(case["torch"])], [2, 2])
        self.assertGreater(case["coeus_tps"], 0)
        self.assertEqual(case["torch_tps"], 2.0)
        self.assertAlmostEqual(case["ratio"], case["coeus_tps"] / 2)
        self.assertIn("attention_backward", [kernel["name"] for kernel in case["profile"]["classes"]])
        self.assertEqual(len(report["gemm"]), 3)

    def test_recipes(self):
        self.link_programs()
        done, report = self.run_script("tiny-bf16-48", *(f"tiny-bf16-48-{name}" for name in ("tensorwise", "rowwise", "mxfp8")))
        self.assertEqual(done.returncode, 0)
        *measured, mxfp8 = report["cases"]
        for case in measured[1:]:
            self.assertRegex(case["note"], r"\d+\.\d\d times the speed without a recipe")
            self.assertEqual(case["torch"], [])
        # each computes other numbers
        self.assertEqual(len({case["coeus"][0]["loss"][-1] for case in measured}), 3)
        self.assertIn("(sm_90) has no MXFP8 products", mxfp8["note"])

    def test_cases_that_cannot_be_measured(self):
        self.link_programs()
        driver = self.folder / "driver"
        script(driver / "nvidia-smi", "echo 'A small GPU, 580.1, 1'")
        path = f"{driver}:{os.environ['PATH']}"
        done, report = self.run_script("tiny-32", PATH=path)
        self.assertEqual((done.returncode, report["card"], report["driver"]), (1, "A small GPU", "580.1"))
        self.assertRegex(report["cases"][0]["note"], "needs at least .* GiB, but -0.4 GiB are free")
        # PyTorch computes another model
        done, report = self.run_script("tiny-bf16-48", PYTHONPATH=self.stand_in_of_torch(7.0))
        self.assertEqual(done.returncode, 0)
        self.assertIn("torch: computes another model: 7 FLOPs per token", report["cases"][0]["note"])
        self.assertNotIn("ratio", report["cases"][0])
        done, report = self.run_script(COEUS_GPU_SECONDS="0")
        self.assertEqual((done.returncode, report["cases"]), (1, []))
        self.assertIn("nothing was measured: no time was left", done.stdout)

    def test_a_program_that_fails(self):
        script(self.folder / "coeus", "echo 'coeus - error - the card is gone'; exit 3")
        script(self.folder / "bench/gpu_gemm", "exit 0")
        done, report = self.run_script()
        self.assertEqual((done.returncode, report["cases"]), (1, []))
        self.assertIn("nothing was measured: coeus - error - the card is gone", done.stdout)
        done = subprocess.run([ROOT / "bench/gpu.sh", self.folder, "9B-1"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no case 9B-1; the cases are 7B-1024, ", done.stderr)


if __name__ == "__main__":
    BUILT = Path(sys.argv.pop(1)).resolve()
    unittests.main()
