#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the scripts for a machine with a GPU, with the emulated GPU and with programs that fail: gpu_scripts.py BUILD
With COEUS_SHORT=1 it only runs each script once, on the emulated GPU."""
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
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


def module(name):
    """Imports a file of the folder bench."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


class Script(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()

    def link_programs(self):
        """Makes a build folder with the programs of the emulated GPU."""
        for name, program in (("coeus", "tests/coeus_emulated"), ("tests/test_gpu", "tests/test_cuda"),
                              ("tests/mpi_gpu", "tests/mpi_cuda"), ("tests/test_gpu_program", "tests/test_emulated"),
                              ("bench/gpu_gemm", "bench/gpu_gemm"), ("bench/gpu_rows", "bench/gpu_rows"),
                              ("CMakeCache.txt", "CMakeCache.txt")):
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
        # the cases that take longest run as tests of their own
        for name, program, cases in (("test_gpu", "test_cuda", r'\"$1\"~\"*with graphs gives*\"'),
                                     ("mpi_gpu", "mpi_cuda", r'\"GPU: experts on*\",\"GPU: rows*\"')):
            (self.folder / "tests" / name).unlink()
            script(self.folder / "tests" / name, f'exec "{BUILT}/tests/{program}" "{cases}"')
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

    def test_hidden_gpus(self):
        script(self.folder / "tests/test_gpu_program", GOOD)
        script(self.folder / "tools/nvidia-smi", 'case "$*" in *list-gpus*) echo "GPU 0"; echo "GPU 1" ;; *) echo ? ;; esac')
        for visible, expected in (("0,1", (3, 0, "")), ("", (3, 0, "")), ("1", (0, 0, "left out: there are not two GPUs"))):
            parts = self.run_script("nccl", CUDA_VISIBLE_DEVICES=visible,
                                    PATH=f"{self.folder / 'tools'}:{os.environ['PATH']}")
            self.assertEqual(parts, {"nccl": expected}, visible)

    def shown(self, stdout):
        """What the script says of ranks that share a GPU, by number."""
        return {int(number): text for number, text in re.findall(r"^([1-7]) (.*)$", stdout, re.MULTILINE)}

    def test_nccl_on_a_shared_gpu(self):
        self.link_programs()
        (self.folder / "tests/mpi_gpu").unlink()
        # a part of the cases
        script(self.folder / "tests/mpi_gpu", f'exec env -u COEUS_EVERY_CASE "{BUILT}/tests/mpi_nccl" "$@"')
        done = subprocess.run([ROOT / "tests/gpu/run.sh", self.folder, "nccl-shared"], capture_output=True, text=True,
                              env=dict(os.environ, OUT=str(self.folder), COEUS_GPU_SECONDS="5600"))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], "^[0-9]+ passed, 0 failed$")
        of_two, of_four = "nccl 2.32.3, 2 ranks on 1 GPU: ", "nccl 2.32.3, 4 ranks on 1 GPU: "
        for number, expected in ((1, of_two + ".* communicators in .*; memory 32.0 MiB a communicator"),
                                 (1, of_four + ".* communicators in .*; memory 32.0 MiB a communicator"),
                                 (2, of_two + r"(\d+) of \1 meshes equal one rank"),
                                 (2, of_four + r"(\d+) of \1 meshes equal one rank"),
                                 (3, of_four + r"graphs equal kernel by kernel on (\d+) of \1 meshes"),
                                 (4, of_four + r"two equal runs have the same bits on (\d+) of \1 meshes"),
                                 (5, of_two + r"NCCL_LAUNCH_ORDER_IMPLICIT = 1, at most 2 blocks: (\d+) of \1 meshes"),
                                 (5, of_two + r"NCCL_LAUNCH_ORDER_IMPLICIT = 0, at most 2 blocks: (\d+) of \1 meshes"),
                                 (6, of_four + "the operations of ranks that another one left were aborted"),
                                 (6, "nccl, 2 ranks of the program on 1 GPU: a killed rank: the other one reports it and ends"),
                                 (7, "nccl, 2 ranks of the program on 1 GPU: a run of 2 shards resumes with 2 tensor ranks, "
                                     "losses equal; NCCL's communicators: .* each")):
            self.assertRegex(done.stdout, f"(?m)^{number} {expected}")

    def test_nccl_on_a_shared_gpu_cut_short(self):
        # a mesh differs, then the ranks hang
        script(self.folder / "tests/mpi_gpu", f"""case "$*" in *nccl-shared]*) ;; *) {GOOD}; exit ;; esac
            echo 'shown 2 nccl 2, 2 ranks on 1 GPU: 1 of 9 meshes equal'
            echo 'shown 2 nccl 2, 2 ranks on 1 GPU: 3 of 9 meshes equal'
            touch {self.folder}/started
            exec sleep 1000""")
        script(self.folder / "tests/test_gpu_program", f"{GOOD}; echo 'shown 7 nccl, resumed'")
        script(self.folder / "tools/mpirun", 'while [ "${1##*/}" != mpi_gpu ]; do shift; done; exec "$@"')
        environment = dict(os.environ, OUT=str(self.folder), PATH=f"{self.folder / 'tools'}:{os.environ['PATH']}")
        command = [ROOT / "tests/gpu/run.sh", self.folder, "nccl-shared"]
        # by its own limits
        done = subprocess.run(command, capture_output=True, text=True, env=environment | {"COEUS_GPU_SECONDS": "3"})
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertIn("shared-2     0 passed, 1 failed", done.stdout)
        self.assertRegex(done.stdout, "took longer than [123] s")
        self.assertEqual(self.shown(done.stdout), {2: "nccl 2, 2 ranks on 1 GPU: 3 of 9 meshes equal"} |
                         {number: "not shown" for number in (1, 3, 4, 5, 6, 7)})
        # by a signal
        (self.folder / "started").unlink()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
            while not (self.folder / "started").exists():
                time.sleep(0.05)
            run.send_signal(signal.SIGTERM)
            stdout = run.communicate()[0]
        self.assertEqual(run.returncode, 1)
        self.assertEqual(self.shown(stdout)[2], "nccl 2, 2 ranks on 1 GPU: 3 of 9 meshes equal")
        self.assertIn("the script was told to end", stdout)
        self.assertEqual(stdout.splitlines()[-1], "0 passed, 1 failed")

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


# trains at once, except for models whose decks say that the embedding is not tied: these take longer than any limit
OVERRUNS = """case $1 in
    train)
        case "$*" in *--dry_run*) echo '  total   1.0 GiB of 4.0 GiB'; echo '5e5 FLOPs per token'; exit ;; esac
        if grep -q 'tied_embeddings = false' "$2"; then echo 'it hangs'; exec sleep 1000; fi
        for word in "$@"; do case $word in --job.dump_folder=*) run=${word#*=} ;; esac; done
        mkdir -p "$run"
        for step in 1 2 3; do
            echo "{\\"step\\":$step,\\"loss\\":6.5,\\"step_s\\":1,\\"tps\\":100.0,\\"tflops\\":1.0,\\"memory_gib\\":1.0}"
        done >"$run/metrics.jsonl"
        printf 'Profile of rank 0\n  gemm   90.0%%   3.0   1.5\n' ;;
esac"""


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

    def stand_in_of_torch(self, flops_per_token=None, tps=(2.0,)):
        """A stand-in for PyTorch with which every program prints fixed figures instead of computing: the speed of each
        of its runs, the last one again and again. Without flops_per_token they are those of the model asked for."""
        (self.folder / "torch.py").write_text(f"""import json, re, sys
from pathlib import Path
if "torch_llama" in sys.argv[0]:
    given = {{key: int(value) for key, value in re.findall(r"--(\\w+)=(\\d+)\\b", " ".join(sys.argv))}}
    dim, width = given["dim"], given["dim"] // given["heads"]
    block = 2 * dim * (given["heads"] + given["kv_heads"]) * width + 3 * dim * given["ffn"] + 2 * dim
    weights = given["vocab"] * dim + given["layers"] * block + dim
    flops = {flops_per_token} or 6 * weights + 12 * given["layers"] * dim * given["seq"]
    runs = Path(__file__).with_name("runs_of_torch")
    done = runs.read_text().splitlines() if runs.exists() else []
    runs.write_text("\\n".join([*done, " ".join(sys.argv[1:])]))
    tps = {list(tps)}
    print(json.dumps({{"tps": tps[min(len(done), len(tps) - 1)], "memory_gib": None, "batch": given["batch"],
                      "recompute": False, "flops_per_token": flops}}))
    if "--profile" in sys.argv:
        print(json.dumps({{"profile": {{"classes": {{"products": 3.0, "optimizer with norm": 1.0}}, "kernels": [["nvjet_a", 3.0]]}}}}))
    sys.exit(0)
__version__ = "9.9"
class version:
    cuda = "13.0"
""")
        return str(self.folder)

    def test_a_case(self):
        self.link_programs()
        done, report = self.run_script("tiny-32", COEUS_GPU_TOKENS="256", PYTHONPATH=self.stand_in_of_torch())
        self.assertEqual(done.returncode, 0)
        (case,) = report["cases"]
        self.assertEqual((case["case"], case["batch"], case["saving"], case["note"]), ("tiny-32", 4, "none", ""))
        self.assertEqual((case["tokens"], case["limit"]), (256, None))  # two local batches of 128 tokens
        self.assertIn("Batch: 8 sequences of 32 tokens per step (4 local x 1 data rank x 2 accumulation)",
                      (self.folder / "gpu-bench/tiny-32.coeus.log").read_text())
        self.assertIn("| no roofline |", done.stdout)
        self.assertEqual([len(case["coeus"]), len(case["torch"])], [2, 2])
        self.assertGreater(case["coeus_tps"], 0)
        self.assertEqual(case["torch_tps"], 2.0)
        self.assertAlmostEqual(case["ratio"], case["coeus_tps"] / 2)
        # the last turn of both has a profile, in steps after the measured ones
        self.assertEqual([run["profile"] is None for run in case["coeus"]], [True, False])
        self.assertIn("attention_backward", [kernel["name"] for kernel in case["coeus"][1]["profile"]["classes"]])
        self.assertRegex(case["coeus"][1]["profile"]["text"], "^Profile of rank 0: 4 steps of ")
        self.assertEqual([len(run["loss"]) for run in case["coeus"]], [5, 6])
        # PyTorch's step has 256 tokens at 2 tokens/s, of which its kernels take 4 ms
        self.assertRegex(done.stdout, r"\n\| class, ms of a step on unknown \| Coeus \| PyTorch \| difference \|\n"
                         r"\|---\|---:\|---:\|---:\|\n\| products \| [\d.]+ \| 3.0 \| [+-][\d.]+ \|\n")
        self.assertRegex(done.stdout, r"\n\| outside of kernels \| -?[\d.]+ \| 127996.0 \| -[\d.]+ \|\n\| \*\*step\*\* \| [\d.]+ \| 128000.0 \|")
        self.assertEqual(len(report["gemm"]), 3)

    def test_on_the_emulated_gpu(self):
        self.link_programs()
        # PyTorch's first turn of the first case is faster than its second by more than all else
        speeds = self.stand_in_of_torch(tps=(1e6, 1.0, 2.0))
        done, report = self.run_script("short", PYTHONPATH=speeds)
        self.assertEqual(done.returncode, 0, done.stdout)
        same = "one local batch, PyTorch's types and order of sums"
        self.assertEqual([(case["case"], case["way"], len(case["coeus"]), len(case["torch"]), case["note"]) for case in report["cases"]],
                         [("tiny-32", "one local batch", 2, 2, ""), ("tiny-bf16-48", "one local batch", 2, 2, ""),
                          ("tiny-32", same, 1, 2, ""), ("tiny-bf16-48", same, 1, 2, ""),
                          ("tiny-32", "256 tokens a step", 1, 1, ""), ("tiny-bf16-48", "256 tokens a step", 1, 1, "")])
        for case in report["cases"]:
            local = 128 if case["case"] == "tiny-32" else 96
            self.assertEqual(case["tokens"], local if "local" in case["way"] else -(-256 // local) * local)
            if case["case"] == "tiny-32" and "local" in case["way"]:
                self.assertTrue(case["level"] and case["spread"] > 1.9, case)
            else:
                self.assertEqual(case["level"], None if "256" in case["way"] else False, case)
        # the turns of PyTorch, and which of them have a profile; with its types Coeus is compared with the same turns
        runs = (self.folder / "runs_of_torch").read_text().splitlines()
        self.assertEqual(["--profile" in run for run in runs], [False, True, False, True, False, False])
        self.assertEqual([re.findall(r"--accumulation=(\d+)", run) for run in runs], [["1"]] * 4 + [["2"], ["3"]])
        self.assertEqual([[run["profile"] is None for run in case["coeus"]] for case in report["cases"]],
                         [[True, False]] * 2 + [[True]] * 4)
        self.assertIn(" --training.gradient_dtype=bfloat16 --kernels.deterministic=false\n",
                      (self.folder / "gpu-bench/tiny-bf16-48.same.coeus.log").read_text())
        self.assertEqual(report["facts"]["PyTorch"], "9.9 13.0")
        self.assertRegex(report["facts"]["program"], r"^coeus \d")
        self.assertIn("rms_norm", [row.get("kernel") for row in report["rows"]])
        self.assertRegex(done.stdout, r"\n\| adam \| small \| 64 x 64, bfloat16 state, float32 gradient \| [\d.]+ \| \d+ \| [\d.]+ \|\n")
        self.assertRegex(done.stdout, r"\n\| tiny-32, one local batch \|.*, level \| \d+.\d % \| \|\n".replace("% \\| \\|", "% \\|  \\|"))

    def test_several_ranks_and_a_roofline(self):
        self.link_programs()
        driver = self.folder / "driver"
        script(driver / "nvidia-smi", "echo 'NVIDIA H100 80GB HBM3, 580.1, 81000'")
        # it starts one rank instead of two, which then has twice as many local batches
        script(driver / "launch", f'echo "$*" >>{self.folder}/launched; shift 3; exec "$@"')
        done, report = self.run_script("tiny-bf16-48", RANKS="2", LAUNCH=f"{driver}/launch --near", COEUS_GPU_TOKENS="500",
                                       PATH=f"{driver}:{os.environ['PATH']}", PYTHONPATH=self.stand_in_of_torch())
        self.assertEqual(done.returncode, 0)
        (case,) = report["cases"]
        # 3 sequences of 48 tokens on each rank, twice: at least 500 tokens
        self.assertEqual((report["ranks"], case["batch"], case["tokens"]), (2, 2, 576))
        # what the program itself prints of an H100, for so small a model
        self.assertEqual(case["limit"], 0.0)
        self.assertIn(f"| {case['limit']:.1f} % |", done.stdout)
        trained, torch = (self.folder / "launched").read_text().splitlines()
        self.assertRegex(trained, r"^--near -n 2 .*/coeus train .*/deck.toml --device=cuda")
        self.assertRegex(torch, r"^--near -n 2 .*torch_llama_cuda.py .*--accumulation=3 --ranks=2 --meeting=.*/meeting$")
        self.assertEqual(case["torch_tps"], 2.0)

    def test_names_of_gpus_and_limits(self):
        bench = module("gpu")
        names = {"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100-pcie", "NVIDIA H200 NVL": "h200-nvl",
                 "NVIDIA A100-SXM4-40GB": "a100-40gb", "NVIDIA A100-PCIE-40GB": "a100-40gb",
                 "NVIDIA A100 80GB PCIe": "a100", "NVIDIA GeForce RTX 4090": "rtx-4090", "NVIDIA RTX A6000": "rtx-a6000",
                 "NVIDIA GH200 480GB": "gh200", "NVIDIA H100 80GB HBM3 MIG 1g.10gb": ""}
        self.assertEqual({card: bench.gpu_of(card) for card in names}, names)
        for text, limit in (("  local batch: 1.0 ms, MFU at most 61.6 %\n  step of 2 local batches: 2.1 ms, MFU at most 54.3 %\n",
                             54.3), ("MFU: 54 %", None), ("  step of 2 local batches: 2.1 ms, 5 tokens/s per rank\n", None)):
            self.assertEqual(bench.mfu_limit(text), limit)

    def test_ratios(self):
        judge = module("gpu").judge
        for coeus, torch, expected in (((100, 102), (100, 100), (1.01, 2 / 101, True)), ((104, 106), (100, 100), (1.05, 2 / 105, False)),
                                       # the second turn of PyTorch is missing, or both
                                       ((104, 150), (100,), (1.04, 46 / 127, True)), ((110,), (100,), (1.1, None, None)),
                                       ((110, 110), (), None), ((), (100,), None)):
            result = {"coeus": [{"tps": tps} for tps in coeus], "torch": [{"tps": tps} for tps in torch]}
            judge(result)
            if expected is None:
                self.assertNotIn("ratio", result)
                continue
            self.assertAlmostEqual(result["ratio"], expected[0])
            self.assertEqual(result["spread"] and round(result["spread"], 9), expected[1] and round(expected[1], 9))
            self.assertEqual(result["level"], expected[2])

    def test_classes_of_kernels(self):
        classes = module("kernel_classes")
        kernels = {  # as an H200 and a CPU name them
            "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT": "products", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n": "products",
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128>": "products",
            "void cublasLt::splitKreduce_kernel<32, 16, int, float>": "products", "aten::mm": "products",
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_128x128x128": "attention, forward",
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>": "attention, forward",
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x128x128": "attention, backward",
            "void cudnn::fusion::compute_dot_do_o_specialized<true>": "attention, backward",
            "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<traits>": "attention, backward",
            "aten::_scaled_dot_product_flash_attention_for_cpu_backward": "attention, backward",
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>": "optimizer with norm",
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<LpNormFunctor>": "optimizer with norm",
            "triton_red_fused__log_softmax_nll_loss_backward_0": "loss and embedding",
            "void at::native::vectorized_gather_kernel<16, long>": "loss and embedding",
            "triton_red_fused__fused_rms_norm_add_3": "norms, RoPE, SwiGLU", "triton_poi_fused_cat_mul_sub_1": "norms, RoPE, SwiGLU",
            "Memcpy DtoD (Device -> Device)": "other kernels"}
        self.assertEqual({name: classes.class_of_torch(name) for name in kernels}, kernels)
        self.assertEqual(classes.by_class([("gemm", 3.0), ("adam", 1.0), ("sum_of_squares", 1.0), ("cast", 0.5)], classes.class_of_coeus),
                         dict.fromkeys(classes.CLASSES, 0.0) | {"products": 3.0, "optimizer with norm": 2.0, "other kernels": 0.5})
        # one side alone has no difference
        self.assertIn("| products | 3.0 |  |  |", classes.table("a card", {"products": 3.0}, {}))
        self.assertIn("| products | 3.0 | 4.0 | -1.0 |", classes.table("a card", {"products": 3.0}, {"products": 4.0}))

    def test_rows(self):
        # names of kernels and of groups
        done = subprocess.run([BUILT / "bench/gpu_rows", "--small", "rms_norm", "rope"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        copy, *rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertIn(copy["copy"], ("cast", "cudaMemcpyAsync"))
        self.assertEqual([row["kernel"] for row in rows], ["rms_norm"] * 2 + ["rope"] * 4)
        for row in rows:
            self.assertGreater(row["bytes"], 0)
            self.assertAlmostEqual(row["share_of_copy"], row["gb_per_s"] / copy["gb_per_s"], places=2)
        done = subprocess.run([BUILT / "bench/gpu_rows", "adma"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertRegex(done.stderr, r'^gpu_rows: there is no kernel "adma" \(did you mean adam\?\); there are norms, rms_norm, ')

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

    def without_torch(self):
        (self.folder / "torch.py").write_text("raise ImportError('there is no PyTorch')\n")
        return str(self.folder)

    def test_a_case_that_overruns(self):
        # it is ended at the deadline, and what was measured before is reported
        script(self.folder / "coeus", OVERRUNS)
        script(self.folder / "bench/gpu_gemm", "exit 0")
        for seconds in ("12", "60", "300"):  # on a busy machine even the first case may take longer
            done, report = self.run_script("tiny-32", "tiny-bf16-48", "tiny-bf16-48-rowwise", COEUS_GPU_SECONDS=seconds,
                                           PYTHONPATH=self.without_torch())
            if len(report["cases"]) == 2:
                break
        self.assertEqual(done.returncode, 0)
        measured, ended = report["cases"]
        self.assertEqual((measured["case"], measured["coeus_tps"], measured["note"]), ("tiny-32", 100, ""))
        self.assertEqual((ended["case"], ended["coeus"], ended["note"]), ("tiny-bf16-48", [], "coeus: no time was left"))
        self.assertEqual(report["left_out"], ["tiny-bf16-48-rowwise"])
        self.assertRegex((self.folder / "gpu-bench/tiny-bf16-48.coeus.log").read_text(), r"^\$ .*/coeus train .*\nit hangs\n$")

    def test_a_signal(self):
        # the report has the cases before it
        script(self.folder / "coeus", OVERRUNS.replace("exec sleep", f"touch {self.folder}/started; exec sleep"))
        script(self.folder / "bench/gpu_gemm", "exit 0")
        environment = dict(os.environ, OUT=str(self.folder), COEUS_GPU_BENCH="tiny", COEUS_GPU_SECONDS="4700",
                           PYTHONPATH=self.without_torch())
        with subprocess.Popen([ROOT / "bench/gpu.sh", self.folder, "tiny-32", "tiny-bf16-48"], env=environment, text=True,
                              stdout=subprocess.PIPE, start_new_session=True) as running:
            while not (self.folder / "started").exists():
                time.sleep(0.05)
            os.killpg(running.pid, signal.SIGTERM)  # as timeout does
            self.assertIn("| tiny-32 |", running.stdout.read())
            self.assertEqual(running.wait(), 1)
        report = json.loads((self.folder / "gpu-bench/gpu-bench.json").read_text())
        case, ended = report["cases"]
        self.assertEqual((case["case"], case["coeus_tps"]), ("tiny-32", 100))
        self.assertEqual((ended["case"], ended["coeus"], report["ended"]), ("tiny-bf16-48", [], "SIGTERM"))
        self.assertIn("the script was ended by SIGTERM", (self.folder / "gpu-bench/gpu-bench.md").read_text())
        self.assertFalse((self.folder / "gpu-bench/work").exists())

    def test_a_program_that_fails(self):
        script(self.folder / "coeus", "echo 'coeus - error - the card is gone'; exit 3")
        script(self.folder / "bench/gpu_gemm", "exit 0")
        done, report = self.run_script()
        self.assertEqual((done.returncode, report["cases"]), (1, []))
        self.assertIn("nothing was measured: coeus - error - the card is gone", done.stdout)
        done = subprocess.run([ROOT / "bench/gpu.sh", self.folder, "9B-1"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no case 9B-1; the cases are 7B-1024, ", done.stderr)


FAKE = """case $1 in
    --version) echo 'coeus 0.2.0' ;;
    info) case $2 in --build) echo '  MPI            Open MPI 4.1.4' ;; *) echo 'a and b: 9 arrays in both, none differ' ;; esac ;;
    help) echo '- **`comm.deterministic`** (boolean)' ;;
    train)
        for word in "$@"; do case $word in --job.dump_folder=*) run=${word#*=} ;; esac; done
        mkdir -p "$run"
        echo '[coeus] 2026 - info - Mesh: 2 ranks: dp_shard 2'
        echo '[coeus] 2026 - info - Ranks exchange tensors through NCCL 2.28.9, without NVLS: comm.deterministic'
        echo '[coeus] 2026 - warning - only one core'
        echo '[coeus] 2026 - info - The GPU runs steps as CUDA graphs'
        echo '  total                            70.1 GiB of 79.6 GiB'
        [ -z "${NCCL_DEBUG-}" ] || echo 'host:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}'
        tps=100; case "$*" in *comm.deterministic=false*) tps=125 ;; esac
        for step in 1 2 3; do
            echo "{\\"step\\":$step,\\"loss\\":6.5,\\"grad_norm\\":0.5,\\"tps\\":$tps.0,\\"memory_gib\\":68.5,\\"gpu_memory_gib\\":71.25}"
        done >"$run/metrics.jsonl" ;;
esac"""


class FirstHour(Script):
    """tests/gpu/first_hour.sh"""
    names = ["facts", "start", "nccl", "links", "bits", "kernels", "tests", "initcheck", "settings", "bench", "nsys", "ncu", "settings-again"]
    # of products of experts
    kernels = ("mma", "decoded", "codes", "decoded+tma", "wgmma", "wgmma+tma")
    products = ("y = x W^T", "dx = dy W", "dW += dy^T x")

    def setUp(self):
        super().setUp()
        self.environment = dict(os.environ, OUT=str(self.folder), COEUS_GPU_BENCH="tiny",
                                PATH=f"{self.folder / 'tools'}:{os.environ['PATH']}")
        for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "CUDA_VISIBLE_DEVICES"):
            self.environment.pop(name, None)

    def run_script(self, *parts, path=ROOT / "tests/gpu/first_hour.sh", report="first_hour/report.md", **environment):
        self.done = subprocess.run([path, self.folder, *parts], capture_output=True, text=True, env=self.environment | environment)
        return self.read(report)

    def read(self, report="first_hour/report.md"):
        """Returns the report, by its titles; checks that the archive has it, and that nothing else is left."""
        self.assertFalse((self.folder / "first_hour/work").exists())
        text = (self.folder / report).read_text()
        with open(self.folder / "first_hour.tar.zst", "rb") as packed:
            unpacked = subprocess.run(["zstd", "-dc"], stdin=packed, capture_output=True, check=True).stdout
        (self.folder / "first_hour.tar").write_bytes(unpacked)
        with tarfile.open(self.folder / "first_hour.tar") as files:
            self.assertEqual(files.extractfile("first_hour/report.md").read().decode(), text)
        _, *pages = re.split("^## ", "## \n" + text, flags=re.MULTILINE)
        return {page.split("\n", 1)[0]: page.split("\n", 1)[1] for page in pages}

    def parts(self, report):
        return re.findall(r"^\| (\S+) \| \d+ \|$", report["Parts"], re.MULTILINE)

    def row(self, report, setting):
        (row,) = [line.strip("|").split("|") for line in report["Settings, with and without"].splitlines() if f"| {setting}" in line]
        return [cell.strip() for cell in row]

    def figures(self, report, setting):
        """Returns the speed with and without the setting, and the note."""
        row = self.row(report, setting)
        return row[3], row[5], row[9]

    def stand_ins(self):
        """Test programs that pass, and tools of CUDA that only start what they examine."""
        for program in ("test_gpu", "mpi_gpu", "test_gpu_program"):
            (self.folder / "tests" / program).unlink(missing_ok=True)
            script(self.folder / "tests" / program, GOOD)
        script(self.folder / "tools/nsys", """[ $1 = profile ] || exit 0
            while [ "$1" != env ] && [ -z "$found" ]; do
                case $1 in --output=*) echo profile >"${1#*=}.nsys-rep" ;; */coeus) break ;; esac
                shift
            done
            exec "$@\"""")
        script(self.folder / "tools/ncu", 'while [ "$1" != --export ]; do shift; done; shift; profile=$1; shift; echo "$@" >"$profile.ncu-rep"')
        script(self.folder / "tools/compute-sanitizer", 'while [ "${1##*/}" != test_gpu ]; do shift; done; exec "$@"')

    def test_on_the_emulated_gpu(self):
        self.link_programs()
        for program in ("gpu_attention", "gpu_grouped"):
            (self.folder / "bench" / program).symlink_to(BUILT / "bench" / program)
        self.stand_ins()
        parts = [name for name in self.names if not name.startswith("settings")]
        report = self.run_script(*parts, "B7", "settings-again")
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""), self.done.stdout)
        self.assertNotIn("What failed", report)
        self.assertEqual(self.parts(report), self.names)
        self.assertRegex(report["Verdicts"], r"training starts with 1 rank\(s\), model tiny: \d+ tokens/s")
        self.assertRegex(report["Verdicts"], r"GPU memory .*: planned \d+ MiB, allocated 0.\d+ GiB")
        for verdict in ("two equal runs on 1 rank(s) (B1): the same bits", "steps as graphs and kernel by kernel: the same bits",
                        "tests (run.sh): 3", "initcheck: no read of uninitialised memory", "nsys-graphs.nsys-rep", "ncu: experts-wgmma.ncu-rep",
                        "ncu: attention.ncu-rep", "ncu: gradients.ncu-rep"):
            self.assertIn(verdict, report["Verdicts"])
        self.assertEqual(report["What was skipped"].strip(),
                         "- nccl: it needs several ranks that train\n- links: it needs several ranks that train")
        _, _, _, with_graphs, _, without, ratio, noise, start, note = self.row(report, "steps as CUDA graphs")
        self.assertGreater(float(start), 0)
        self.assertTrue(int(with_graphs) > 0 and int(without) > 0 and float(ratio) > 0 and noise.endswith(" %"))
        self.assertEqual(note, "")
        self.assertIn("| tiny-32 |", report["bench/gpu.sh, 1 rank(s)"])
        self.assertIn('"pass": "backward"', report["gpu_attention"])
        for kernel in self.kernels:
            products = [json.loads(line) for line in report[f"gpu_grouped {kernel}"].splitlines() if line.startswith("{")]
            self.assertEqual([(p["kernels"], p["product"]) for p in products], [(kernel, product) for product in self.products])
            for product in products:
                self.assertTrue(product["same_bits"] and product["difference"] < 1e-5, product)
            if kernel == "codes":
                self.assertEqual({p["launches"] for p in products}, {"grouped_gemm_8_bit", "grouped_gemm_8_bit_weights"})
        self.assertIn('"kernel": "adam"', report["gpu_rows"])
        # each profile starts only the kernel that it shows
        self.assertEqual((self.folder / "first_hour/adam.ncu-rep").read_text(), f"{self.folder}/bench/gpu_rows adam\n")
        for profile, kernel in (("experts", "mma"), ("experts-codes", "codes"), ("experts-wgmma", "wgmma"), ("experts-tma", "wgmma+tma")):
            self.assertEqual((self.folder / f"first_hour/{profile}.ncu-rep").read_text(),
                             f"{self.folder}/bench/gpu_grouped {kernel} 8 2048 2048 2816\n")

    def test_a_kernel_of_experts_that_crashes(self):
        # the rates of all others are in the report
        script(self.folder / "coeus", FAKE)
        script(self.folder / "bench/gpu_grouped", "echo \"rates of $*\"; case $1 in *wgmma) echo 'error: illegal access'; kill -SEGV $$ ;; esac")
        script(self.folder / "bench/gpu_rows", "echo rows")
        script(self.folder / "bench/gpu_gemm", "echo products")
        script(self.folder / "bench/gpu_attention", "echo attention")
        report = self.run_script("kernels")
        self.assertEqual(report["What failed"].strip(),
                         "- **gpu_grouped wgmma**: exit code 139: error: illegal access (logs/gpu_grouped-wgmma.log)")
        pages = [title for title in report if title.startswith("gpu_")]
        self.assertEqual(pages, ["gpu_rows", "gpu_attention", "gpu_gemm", "gpu_grouped wgmma+tma", "gpu_grouped wgmma", "gpu_grouped mma",
                                 "gpu_grouped decoded+tma", "gpu_grouped decoded", "gpu_grouped codes", "gpu_gemm --steady"])
        for kernel in self.kernels:
            self.assertEqual(report[f"gpu_grouped {kernel}"].split("\n")[2], f"rates of {kernel} 2 40 32 48")

    def test_products_of_experts_by_other_kernels(self):
        # rows that are not multiples of 16 bytes: the bench says that it does not measure what was asked for
        done = subprocess.run([BUILT / "bench/gpu_grouped", "all", "3", "37", "32", "20"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        products = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(p["kernels"], p["product"]) for p in products],
                         [(kernel, product) for kernel in self.kernels for product in self.products])
        errors = {(p["kernels"], p["product"]): p["error"] for p in products if "error" in p}
        others = {(kernels, product): "operands of these sizes have another kernel" for kernels in ("decoded+tma", "wgmma", "wgmma+tma")
                  for product in self.products}
        self.assertEqual(errors, {**others, ("codes", "dx = dy W"): "operands of these sizes are decoded on sm_90",
                                  ("codes", "dW += dy^T x"): "operands of these sizes are decoded on sm_90"})

    def test_a_list_of_kernels(self):
        # results of which only some rows are compared
        done = subprocess.run([BUILT / "bench/gpu_grouped", "wgmma,codes", "1", "1030", "16", "16"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        products = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([p["kernels"] for p in products], ["wgmma"] * 3 + ["codes"] * 3)
        for product in products:
            self.assertTrue(product["same_bits"] and product["difference"] < 1e-5, product)
        rule = "KERNELS is all, or names with commas between them: " + ", ".join(self.kernels)
        for arguments, error in ((["mma", "3"], "usage: gpu_grouped [KERNELS [GROUPS ROWS INPUTS OUTPUTS]]"),
                                 (["mma,wgma"], f'there is no kernel "wgma" (did you mean wgmma?); {rule}'),
                                 (["3"], f'there is no kernel "3"; {rule}'), ([""], f'there is no kernel ""; {rule}')):
            done = subprocess.run([BUILT / "bench/gpu_grouped", *arguments], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "", f"gpu_grouped: {error}\n"))

    def test_two_ranks(self):
        self.link_programs()
        (self.folder / "bench/gpu_collectives").symlink_to(BUILT / "bench/gpu_collectives")
        report = self.run_script("nccl", "links", RANKS="2")
        self.assertEqual((self.done.returncode, self.parts(report)), (0, ["facts", "start", "nccl", "links"]), self.done.stdout)
        self.assertIn("training starts with 2 rank(s), model tiny", report["Verdicts"])
        self.assertIn("| NCCL | pinned host memory: ranks 0 and 1 share GPU", report[""])
        self.assertEqual(re.findall(r": rank (\d)", report["Where the ranks are"]), ["0", "1"])
        self.assertIn("nccl: the ranks do not use NCCL", report["What was skipped"])

    def test_links(self):
        # what it prints is a level of a machine file, with which the communication of a dry run has a time
        def run_it(*arguments, ranks=2):
            launch = subprocess.run([ROOT / "tools/mpirun_command.sh", BUILT], capture_output=True, text=True, check=True).stdout.split()
            return subprocess.run([*launch, "-n", str(ranks), BUILT / "bench/gpu_collectives", *arguments], capture_output=True, text=True)
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = run_it("dp_shard=2", "tp=2", "from=1000", "to=17000", ranks=4)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# 4 ranks share a GPU: these are not rates of links", done.stdout)
        levels = tomllib.loads(done.stdout)["level"]
        self.assertEqual([(level["name"], level["ranks"]) for level in levels], [("dp_shard", 2), ("tp", 2)])
        for level in levels:
            for operation in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "message"):
                sizes, rates = zip(*level[operation])
                self.assertEqual(sizes, (1000, 4000, 16000), operation)
                self.assertTrue(all(rate > 0 for rate in rates), operation)
        machine = (ROOT / "machines/h200.toml").read_text()
        before, rest = machine.split("# Within a node NCCL runs rings", 1)
        (self.folder / "mine.toml").write_text(before + done.stdout + rest[rest.index('[[level]]\nname = "infiniband"'):])
        plan = subprocess.run([BUILT / "tests/coeus_emulated", "train", ROOT / "tests/data/roofline/roofline_d.toml", "--dry_run",
                               f"--gpu={self.folder}/mine.toml", "--ranks=2", "--training.global_batch_size=-1",
                               "--parallelism.data_parallel_shard_degree=2"], capture_output=True, text=True)
        self.assertEqual(plan.returncode, 0, plan.stderr + plan.stdout)
        gathers = re.search(r"^  gathers of weights +(\d+\.\d)", plan.stdout, re.MULTILINE)
        self.assertGreater(float(gathers[1]), 1e4)  # of the emulation
        for arguments, error in ((["tpp=2"], 'there is no argument "tpp" (did you mean pp?); there are from, to, nvls, transport, cp, '),
                                 (["from=x"], "from = x: it must be a number from 1 to 1e12"), (["from=9", "to=8"], "from = 9: it must be at most to = 8"),
                                 (["transport=mpi"], "transport = mpi: it must be auto, nccl or staged"),
                                 (["tp=3"], "parallelism.tensor_parallel_degree = 3: ")):
            done = run_it(*arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stderr.count("gpu_collectives: " + error), 1, done.stderr)

    def test_ten_minutes(self):
        # two turns of the first six settings before the seventh; two files that can be taken away
        self.fake_with(["model.converters", "quantize.linear.float8.filter_fqns", "quantize.linear.float8.recipe_name",
                        "training.gradient_dtype", "kernels.logits_chunk_mib", "training.disable_cuda_graphs", "kernels.attention",
                        "kernels.deterministic"], "echo '[coeus] 2026 - info - Start-up 1.5 s: program 0.0'")
        for program in ("gpu_rows", "gpu_attention", "gpu_gemm", "gpu_grouped"):
            script(self.folder / "bench" / program, f"echo {program}")
        report = self.run_script("short", report="report.md")
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""), self.done.stdout)
        self.assertFalse((self.folder / "first_hour").exists())
        self.assertEqual(self.parts(report), ["facts", "start", "kernels", "settings"])
        ran = re.findall("^   ([B\\w]+) .*: .* with, .* tokens/s without$", self.done.stdout, re.MULTILINE)
        six = ["float8", "float8", "B14", "B15", "B7", "B11"]
        self.assertEqual(ran, six + six + ["B11"])
        self.assertEqual(self.row(report, "attention by cuDNN")[7:], ["0.0 %", "1.5", ""])
        self.assertEqual(self.row(report, "the same bits each time")[7:], ["", "1.5", ""])

    def test_nccl_and_settings(self):
        # stand-ins for the program and for Slurm; a setting of which this program knows nothing
        script(self.folder / "coeus", FAKE)
        script(self.folder / "tools/srun", 'case $1 in --mpi=list) echo "none pmix pmi2"; exit ;; esac; while [ $1 != -n ]; do shift; done; shift 2; exec "$@"')
        report = self.run_script("nccl", "bits", "B1", "B6", RANKS="2", SLURM_JOB_ID="7", SLURM_JOB_NUM_NODES="2")
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""), self.done.stdout)
        self.assertIn("| ranks | 2, started by `srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block --nodes=2 --ntasks-per-node=1 -n 2` |", report[""])
        self.assertIn("warnings at the start: only one core", report["Verdicts"])
        self.assertIn("planned 70.1 GiB, allocated 68.5 GiB, in use: 71.25 GiB, by the driver", report["Verdicts"])
        self.assertRegex(report["What NCCL chose"], r"1 AllReduce: N Bytes -> Algo RING proto LL")
        self.assertIn("NCCL: NCCL 2.28.9, without NVLS: comm.deterministic, algorithms: 1 Algo RING proto LL", report["Verdicts"])
        self.assertIn("with comm.deterministic = false: the same bits", report["Verdicts"])
        self.assertEqual(self.row(report, "sums without NVLS")[3::2], ["100", "125", "0.0 %", ""])
        self.assertEqual(self.row(report, "sums without NVLS")[6], "0.800")
        self.assertEqual(report["Settings that change the speed by more than 3 %, and more than the noise"].strip(),
                         "- B1 `--comm.deterministic=true`: 0.800 times the speed of `--comm.deterministic=false`, noise 0.0 %")
        self.assertEqual(self.row(report, "products leave 16 multiprocessors")[9], "this program has no option kernels.sm_margin")

    def fake_with(self, options, lines):
        """FAKE with more options, and with lines of its own in training."""
        text = FAKE.replace("**`comm.deterministic`** (boolean)", "\n- ".join(f"**`{name}`** (text)" for name in options))
        script(self.folder / "coeus", text.replace('        mkdir -p "$run"\n', '        mkdir -p "$run"\n' + lines + "\n", 1))

    def test_warnings_and_needs_of_settings(self):
        self.fake_with(["model.name", "model.flavor", "model.n_layers", "model.vocab_size", "model.converters",
                        "quantize.grouped_mm.float8.fqns", "kernels.experts", "kernels.experts_in_8_bits"],
                       "case \"$*\" in *kernels.experts=wgmma*) echo '[coeus] 2026 - warning - experts are computed by mma' ;; esac")
        driver = """case "$*" in *compute_cap*) echo {} ;; *list-gpus*) echo 'GPU 0' ;; *) exit 9 ;; esac"""
        script(self.folder / "tools/nvidia-smi", driver.format("9.0"))
        report = self.run_script("experts", "settings-again")
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""), self.done.stdout)
        # not those that the start has as well; once, although both turns have it
        self.assertEqual(self.row(report, "products of experts by wgmma (")[9], "with: experts are computed by mma")
        self.assertEqual(self.row(report, "products of experts in 8 bits")[9], "")
        self.assertEqual(report["Verdicts"].count("- warning of setting experts, products of experts by wgmma, with: experts "
                                                  "are computed by mma\n"), 1)
        self.assertEqual(report["Verdicts"].count("only one core"), 1)
        script(self.folder / "tools/nvidia-smi", driver.format("10.0"))
        report = self.run_script("experts")
        self.assertEqual(self.row(report, "products of experts by wgmma (")[9], "it needs a GPU of sm_90; this one is of sm_100")
        self.assertEqual(self.figures(report, "products of experts in 8 bits"), ("100", "100", ""))
        script(self.folder / "tools/nvidia-smi", driver.format("8.0"))
        report = self.run_script("experts")
        self.assertEqual(self.figures(report, "products of experts in 8 bits"),
                         ("", "", "it needs a GPU of sm_89 or later; this one is of sm_80"))

    def test_settings_again(self):
        # in the first turn one setting fails, one runs until the time of the part ends, and one is left out
        self.fake_with(["model.converters", "quantize.linear.float8.filter_fqns", "quantize.linear.float8.recipe_name",
                        "training.gradient_dtype", "kernels.logits_chunk_mib", "training.disable_cuda_graphs"],
                       """case "$*" in
                           *setting-*-1' '*gradient_dtype=bfloat16*) echo 'error: no'; exit 1 ;;
                           *setting-*-1' '*logits_chunk_mib=1024*) exec sleep 1000 ;;
                       esac""")
        text = (ROOT / "tests/gpu/first_hour.sh").read_text()
        self.assertEqual(text.count("\npart settings 1200 "), 1)
        short = self.folder / "short.sh"
        short.write_text(text.replace("\npart settings 1200 ", "\npart settings 10 "))
        short.chmod(0o755)
        report = self.run_script("float8", "B14", "B15", "B7", "settings-again", path=short)
        first, again = [re.findall("^   (B14|B15|B7|float8) .*: (.*) with, (.*) tokens/s without$", turn, re.MULTILINE)
                        for turn in self.done.stdout.split("== settings-again")]
        both = ("100.0", "100.0")
        self.assertEqual(first, [("float8", *both), ("float8", *both), ("B14", "", "100.0"), ("B15", "", "")])
        self.assertEqual(again, [("B15", *both), ("B7", *both), ("float8", *both), ("float8", *both), ("B14", *both)])
        for row in ("gradients in bfloat16", "logits in chunks", "steps as CUDA graphs"):
            self.assertEqual(self.figures(report, row), ("100", "100", ""), row)
        self.assertNotIn("What was skipped", report)
        self.assertRegex(report["What failed"].strip(),
                         r"^- \*\*setting B14, gradients in bfloat16, with\*\*: exit code 1: error: no \(logs/setting-\d+-with-1.log\)$")
        # without another turn
        report = self.run_script("float8", "B15", "B7", path=short)
        self.assertEqual(report["What was skipped"].strip().split("\n"),
                         ["- setting B15, logits in chunks of 1 GiB, beside 256 MiB: no time was left",
                          "- setting B7, steps as CUDA graphs: no time was left"])
        self.assertEqual(self.row(report, "logits in chunks")[9], "no time was left")

    def test_a_bundle(self):
        script(self.folder / "first-hour.sh", "")
        (self.folder / "first-hour.sh").write_text((ROOT / "tests/gpu/first_hour.sh").read_text())
        script(self.folder / "gpu-tests.sh", "echo kernels 1 passed; echo '7 passed, 0 failed'")
        script(self.folder / "run", 'here=${0%/*}; program=$1; shift; exec "$here/bin/$program" "$@"')
        script(self.folder / "bin/gpu_rows", "echo rows $*")
        script(self.folder / "bin/gpu_grouped", "echo experts")
        script(self.folder / "bin/gpu_gemm", "echo products")
        script(self.folder / "bin/gpu_attention", "echo attention")
        script(self.folder / "bench/gpu.sh", 'mkdir -p "$OUT/gpu-bench"; echo "$RANKS ranks: $*" >"$OUT/gpu-bench/gpu-bench.md"')
        script(self.folder / "coeus", FAKE)
        script(self.folder / "mpirun", 'while [ $1 != -n ]; do shift; done; shift 2; exec "$@"')
        self.done = subprocess.run(["./first-hour.sh", ".", "tests", "bench", "kernels"], cwd=self.folder, capture_output=True,
                                   text=True, env=self.environment | {"RANKS": "2"})
        report = self.read()
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""), self.done.stdout)
        self.assertIn("2, started by `mpirun --oversubscribe --bind-to none -n 2`", report[""])
        self.assertIn("tests (run.sh): 7 passed, 0 failed", report["Verdicts"])
        self.assertEqual(self.parts(report), ["facts", "start", "kernels", "tests", "bench"])
        self.assertEqual([report[title].split("\n")[2] for title in ("gpu_rows", "gpu_grouped mma", "gpu_gemm", "gpu_attention")],
                         ["rows --small", "experts", "products", "attention"])
        for ranks in 1, 2:
            self.assertIn(f"{ranks} ranks: {self.folder} tiny-32 tiny-bf16-48", report[f"bench/gpu.sh, {ranks} rank(s)"])

    def test_a_bench_that_overruns(self):
        # it ends its last run by itself and reports, before the time limit of its part ends it
        script(self.folder / "coeus", FAKE + "\n" + OVERRUNS)
        script(self.folder / "bench/gpu_gemm", "exit 0")
        (self.folder / "torch.py").write_text("raise ImportError('there is no PyTorch')\n")
        for seconds in ("30", "120", "600"):  # on a busy machine even the first case may take longer
            report = self.run_script("bench", COEUS_HOUR_SECONDS=seconds, PYTHONPATH=str(self.folder))
            if "| tiny-bf16-48 |" in report.get("bench/gpu.sh, 1 rank(s)", ""):
                break
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""), self.done.stdout)
        self.assertRegex(report["bench/gpu.sh, 1 rank(s)"], r"\| tiny-32 \|.*\| 100 \|")
        self.assertRegex(report["bench/gpu.sh, 1 rank(s)"], r"\| tiny-bf16-48 \|.*coeus: no time was left")

    def test_runs_with_different_bits(self):
        self.link_programs()
        (self.folder / "coeus").unlink()
        script(self.folder / "coeus", f"""case "$*" in train*bits-2*) set -- "$@" --debug.seed=1 ;; esac
            exec {BUILT}/tests/coeus_emulated "$@\"""")
        report = self.run_script("bits")
        self.assertEqual(self.done.returncode, 1)
        self.assertIn("steps as graphs and kernel by kernel: the same bits", report["Verdicts"])
        self.assertRegex(report["What failed"], r"\*\*bits\*\*: two equal runs on 1 rank\(s\): .* arrays in both, \d+ differ \(logs/")

    def test_programs_that_fail(self):
        script(self.folder / "coeus", "echo 'coeus - error - the card is gone'; kill -SEGV $$")
        for tool in ("nsys", "ncu", "compute-sanitizer"):
            script(self.folder / "tools" / tool, f"echo '{tool}: no permission'; exit 9")
        script(self.folder / "bench/gpu_gemm", "exit 3")
        report = self.run_script()
        self.assertEqual(self.done.returncode, 1)
        self.assertEqual(self.parts(report), self.names)
        failed = dict(re.findall(r"^- \*\*(.*?)\*\*: (.*)$", report["What failed"], re.MULTILINE))
        self.assertEqual(list(failed), ["facts", "start", "bits", "gpu_rows", "gpu_attention", "gpu_gemm", "gpu_grouped wgmma+tma",
                                        "gpu_grouped wgmma", "gpu_grouped mma", "gpu_grouped decoded+tma", "gpu_grouped decoded",
                                        "gpu_grouped codes", "gpu_gemm --steady", "tests", "initcheck", "bench, 1 rank(s)", "nsys", "ncu, adam", "ncu, norms",
                                        "ncu, experts", "ncu, attention", "ncu, gradients", "ncu, experts-codes",
                                        "ncu, experts-wgmma", "ncu, experts-tma"])
        self.assertEqual(failed["start"], "no data: exit code 139: coeus - error - the card is gone (logs/tokenizer.log)")
        self.assertEqual(failed["ncu, gradients"], "exit code 9: ncu: no permission (logs/ncu-gradients.log)")
        self.assertIn("0 passed", failed["tests"])
        self.assertEqual(failed["gpu_attention"], f"there is no {self.folder}/bench/gpu_attention")
        for name in ("tokenizer", "tests", "bench-1"):
            self.assertTrue((self.folder / f"first_hour/logs/{name}.log").exists())
        self.assertEqual(self.row(report, "steps as CUDA graphs")[9], "this program has no option training.disable_cuda_graphs")

    def test_a_crash_on_several_ranks(self):
        # one rank trains, two do not: all else is measured with one
        script(self.folder / "coeus", FAKE)
        script(self.folder / "tools/launch", "echo 'error: no route to host b'; exit 1")
        report = self.run_script("nccl", "B1", RANKS="2", LAUNCH=f"{self.folder}/tools/launch")
        self.assertIn("**start, model tiny, 2 rank(s)**: exit code 1: error: no route to host b (logs/start-tiny-2.log)", report["What failed"])
        self.assertIn("training starts with 1 rank(s), model tiny: 100 tokens/s", report["Verdicts"])
        self.assertEqual(self.row(report, "sums without NVLS")[9], "it needs several ranks")

    def test_ranks_that_do_not_find_each_other(self):
        script(self.folder / "coeus", FAKE.replace("Mesh: 2 ranks", "Mesh: 1 rank"))
        script(self.folder / "tools/launch", 'shift 2; exec "$@"')
        report = self.run_script("start", RANKS="2", LAUNCH=f"{self.folder}/tools/launch")
        self.assertIn("the ranks did not find each other: ", report["What failed"])

    def test_a_missing_program(self):
        report = self.run_script("start", "tests", "kernels")
        self.assertEqual((self.done.returncode, self.parts(report)), (1, ["facts", "start", "kernels", "tests"]))
        for what in (f"**start**: there is no {self.folder}/coeus", f"**gpu_gemm**: there is no {self.folder}/bench/gpu_gemm"):
            self.assertIn(what, report["What failed"])

    def test_a_program_that_hangs(self):
        script(self.folder / "coeus", f"case $1 in train) trap '' TERM; while :; do sleep 1; done ;; *) {BUILT}/tests/coeus_emulated \"$@\" ;; esac")
        report = self.run_script("start", "initcheck", COEUS_RUN_SECONDS="1")
        self.assertEqual((self.done.returncode, self.parts(report)), (1, ["facts", "start", "initcheck"]))
        self.assertIn("**start, model tiny, 1 rank(s)**: took longer than 1 s (logs/start-tiny-1.log)", report["What failed"])

    def test_a_signal(self):
        # the report of what there is, when a job's time ends
        script(self.folder / "coeus", f"case $1 in train) echo $$ >{self.folder}/started; exec sleep 1000 ;; "
               f"*) exec {BUILT}/tests/coeus_emulated \"$@\" ;; esac")
        with subprocess.Popen([ROOT / "tests/gpu/first_hour.sh", self.folder], env=self.environment, stdout=subprocess.DEVNULL) as script_run:
            while not (self.folder / "started").exists():
                time.sleep(0.05)
            script_run.send_signal(signal.SIGTERM)
            self.assertEqual(script_run.wait(), 1)
        report = self.read()
        self.assertEqual((self.parts(report), report["What failed"].splitlines()[1]), (["facts"], "- **start**: ended by SIGTERM"))

    def test_an_error_of_the_script(self):
        # as if a line of it were wrong
        text = (ROOT / "tests/gpu/first_hour.sh").read_text()
        planted = self.folder / "planted.sh"
        planted.write_text(text.replace("part_nccl() {", "part_nccl() {\n    echo $((no number))", 1))
        planted.chmod(0o755)
        script(self.folder / "coeus", FAKE)
        report = self.run_script("nccl", "kernels", path=planted)
        self.assertIn("- **nccl**: ended by an error of this script", report["What failed"])
        self.assertEqual(self.done.returncode, 1)

    def test_no_time(self):
        script(self.folder / "coeus", FAKE)
        report = self.run_script(COEUS_HOUR_SECONDS="0")
        self.assertEqual([line.split(":")[0][2:] for line in report["What was skipped"].split("\n") if line], self.names)
        self.assertEqual(self.done.returncode, 0)

    def test_wrong_arguments(self):
        report = self.folder / "first_hour/report.md"
        report.parent.mkdir()
        report.write_text("of an earlier run")
        for arguments, environment, said in ((["meshes"], {}, "there is no part meshes; the parts are facts start nccl links bits kernels "),
                                             (["start"], {"RANKS": "two"}, "RANKS = two: it must be a number of ranks, from 1 on")):
            done = subprocess.run([ROOT / "tests/gpu/first_hour.sh", self.folder, *arguments], capture_output=True, text=True,
                                  env=self.environment | environment)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
            self.assertEqual(report.read_text(), "of an earlier run")


if __name__ == "__main__":
    BUILT = Path(sys.argv.pop(1)).resolve()
    if os.environ.get("COEUS_SHORT") == "1":
        unittest.defaultTestLoader.testMethodPrefix = "test_on_the_emulated_gpu"
    unittests.main()
