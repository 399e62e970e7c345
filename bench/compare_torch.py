#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of Coeus and of PyTorch (torch.compile) side by side on this machine, in alternation.

    bench/compare_torch.py [--alternations 3] [--threads 2] [--dtypes f32,bf16] [--emulated]

Shape: bench/debug_shape.toml. PyTorch's program is bench/torch_llama.py of the reference files ($COEUS_SHARED, default
../shared); PyTorch itself comes from PyPI into build/bench/torch. Where either cannot be had, Coeus is measured
alone and the table says so. Each run's figure is its median step after two warm-up steps; the table shows the
median over the runs. Compare ratios, not absolute figures of two days.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/bench"
SHARED = Path(os.environ.get("COEUS_SHARED", ROOT.parent / "shared"))
TORCH_PROGRAM = SHARED / "bench/torch_llama.py"
TOKENS_PER_STEP = 8 * 512
COMPUTE = {"f32": "float32", "bf16": "bfloat16"}
# without these PyTorch is up to twice slower where the first touch of memory is slow
ALLOCATOR = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184" \
            ":glibc.malloc.top_pad=268435456"
WRITE_TOKENS = """
import h5py, numpy, sys
tokens = numpy.random.default_rng(0).integers(0, 2048, 1_000_000, dtype=numpy.uint16)
with h5py.File(sys.argv[1], "w") as file:
    file["tokens"], file["documents"] = tokens, numpy.array([0, len(tokens)], dtype=numpy.uint64)
"""


def processor():
    """(model name, can it multiply bfloat16)"""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    flags = fields.get("flags", "").split()
    return fields.get("model name", "unknown processor"), "avx512_bf16" in flags or "amx_bf16" in flags


def torch_python():
    """The Python of a folder of its own with PyTorch in it, or a reason why there is none."""
    if not TORCH_PROGRAM.exists():
        return None, f"{TORCH_PROGRAM} is absent (set COEUS_SHARED)"
    folder = WORK / "torch"
    python = folder / "bin/python"
    ready = folder / "ready"
    if ready.exists():
        return python, None
    print("PyTorch: installing from PyPI into build/bench/torch (5 GB)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "torch", "numpy"],
                    [python, "-c", "import torch"]):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
            return None, f"PyTorch cannot be had: {reason[0] if reason else command}"
    ready.touch()
    return python, None


def write_tokens(path):
    """A token file of a million random tokens, by the first Python that has h5py."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", WRITE_TOKENS, str(path)], capture_output=True).returncode == 0:
            return
    sys.exit("no python3 with h5py to write the token file (Debian: python3-h5py)")


def run_coeus(dtype, threads):
    """Tokens per second of the median step."""
    output = WORK / "coeus"
    shutil.rmtree(output, ignore_errors=True)
    command = [ROOT / "build/coeus", "train", "bench/debug_shape.toml", f"--job.dump_folder={output}",
               f"--training.dataset_path={WORK / 'tokens.h5'}", f"--training.mixed_precision_param={COMPUTE[dtype]}",
               f"--training.threads={threads}", "--device=cpu"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"coeus ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [r["step_s"] for r in records if "step_s" in r and r["step"] > 2]
    return TOKENS_PER_STEP / statistics.median(steps)


def run_torch(python, dtype, threads, steps):
    """Tokens per second of the median step, and PyTorch's version."""
    environment = dict(os.environ, GLIBC_TUNABLES=ALLOCATOR, TORCHINDUCTOR_CACHE_DIR=str(WORK / "inductor"))
    command = [python, TORCH_PROGRAM, "--shape", "debug", "--seq", "512", "--batch", "8", "--steps", str(steps),
               "--dtype", dtype, "--threads", str(threads), "--compile"]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"torch_llama.py ended with {done.returncode}:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return result["tps_median"], result["torch"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", default="f32,bf16", help="f32, bf16 or both")
    parser.add_argument("--emulated", action="store_true",
                        help="bf16 beside PyTorch even where this CPU cannot multiply it: one run of 4 steps, 4 minutes")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    model, has_bf16 = processor()
    python, absent = torch_python()
    write_tokens(WORK / "tokens.h5")

    rows, version = [], "absent"
    for dtype in given.dtypes.split(","):
        # without the instructions PyTorch emulates bfloat16, some 30 times slower than float32
        emulated = dtype == "bf16" and not has_bf16
        torch_runs = 0 if not python else given.alternations if not emulated else int(given.emulated)
        ours, theirs = [], []
        for alternation in range(given.alternations):
            ours.append(run_coeus(dtype, given.threads))
            if alternation < torch_runs:
                speed, version = run_torch(python, dtype, given.threads, 4 if emulated else 8)
                theirs.append(speed)
            print(f"{dtype} run {alternation + 1}: coeus {ours[-1]:,.0f} tok/s"
                  + (f", PyTorch {theirs[-1]:,.0f} tok/s" if alternation < torch_runs else ""), flush=True)
        mine = statistics.median(ours)
        if theirs:
            other = statistics.median(theirs)
            rows.append(f"| {dtype} | {mine:,.0f} | {other:,.0f} | {mine / other:.2f} |")
        else:
            why = "not measured: emulated here (--emulated)" if python else "not measured"
            rows.append(f"| {dtype} | {mine:,.0f} | {why} | |")

    print(f"\n{model}, {os.cpu_count()} cores, {given.threads} threads; PyTorch {version}"
          + (f" ({absent})" if absent else ""))
    print("d256 L6 h16 V2048, seq 512, batch 8, one rank; tokens/s, median of the runs\n")
    print("| type | coeus | PyTorch compiled | ratio |\n|---|---:|---:|---:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
