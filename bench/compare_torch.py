#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training steps of Coeus and of PyTorch (torch.compile) on this machine, in alternation.

    bench/compare_torch.py [--shapes debug-512,small-1024] [--dtypes f32,bf16,f8] [--alternations 3] [--threads 2] [--emulated]

PyTorch's program is bench/torch_llama.py of the reference files ($COEUS_SHARED, default ../shared); PyTorch and torchao
are installed from PyPI into build/bench/torch. If either is missing, only Coeus is measured, and the table says so. f8
is bfloat16 with all linear layers in 8 bits (tensorwise), which both emulate. The figure of a run is its median step
after two warm-up steps. The table shows the median over the runs, and its share of the machine's own GEMM rate (causal:
only the keys that a query sees are counted). Then the script compares Coeus on 2 ranks x 1 thread with 1 rank x 2
threads, and measures the time from the start of the program to its first step.
Compare ratios, not absolute figures of different days.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/bench"
SHARED = Path(os.environ.get("COEUS_SHARED", ROOT.parent / "shared"))
TORCH_PROGRAM = SHARED / "bench/torch_llama.py"
# the shapes of torch_llama.py: dim, layers, heads, kv heads, ffn, vocabulary
MODELS = {"debug": (256, 6, 16, 16, 768, 2048), "small": (768, 12, 12, 4, 2048, 32000)}
# model, sequence length, sequences per step
SHAPES = {"debug-512": ("debug", 512, 8), "debug-2048": ("debug", 2048, 2), "debug-8192": ("debug", 8192, 1),
          "small-1024": ("small", 1024, 2)}
# the project's goals: speed relative to PyTorch; speed relative to one rank; seconds
GOALS = {("debug-512", "f32"): 1.5, ("debug-512", "bf16"): 1.5, ("small-1024", "f32"): 1.2, ("small-1024", "bf16"): 1.1,
         ("debug-512", "f8"): 3, ("small-1024", "f8"): 3}
RANKS_GOAL, START_GOAL = 0.9, 1.0
COMPUTE = {"f32": ["--training.mixed_precision_param=float32"], "bf16": ["--training.mixed_precision_param=bfloat16"],
           "f8": ["--training.mixed_precision_param=bfloat16", "--model.converters=quantize.linear.float8"]}
# without these settings PyTorch takes up to twice as long on machines on which the first access to memory is slow
ALLOCATOR = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184" \
            ":glibc.malloc.top_pad=268435456"
WRITE_TOKENS = """
import h5py, numpy, sys
tokens = numpy.random.default_rng(0).integers(0, 2048, 1_000_000, dtype=numpy.uint16)
with h5py.File(sys.argv[1], "w") as file:
    file["tokens"], file["documents"] = tokens, numpy.array([0, len(tokens)], dtype=numpy.uint64)
"""


def processor():
    """Returns (name of the CPU, whether it has instructions for products of bfloat16)."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    flags = fields.get("flags", "").split()
    return fields.get("model name", "unknown processor"), "avx512_bf16" in flags or "amx_bf16" in flags


def torch_python():
    """Returns the Python of an environment with PyTorch and None, or None and the reason why there is none."""
    if not TORCH_PROGRAM.exists():
        return None, f"there is no {TORCH_PROGRAM} (set COEUS_SHARED)"
    folder = WORK / "torch"
    python = folder / "bin/python"
    ready = folder / "ready_with_torchao"
    if ready.exists():
        return python, None
    print("PyTorch: installing from PyPI into build/bench/torch (5 GB)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "torch", "numpy", "torchao"],
                    [python, "-c", "import torch, torchao"]):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
            return None, f"PyTorch cannot be installed: {reason[0] if reason else command}"
    ready.touch()
    return python, None


def write_tokens(path):
    """Writes a token file of a million random tokens, with the first Python that has h5py."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", WRITE_TOKENS, str(path)], capture_output=True).returncode == 0:
            return
    sys.exit("there is no python3 with h5py to write the token file (Debian: python3-h5py)")


def causal_flops_per_token(shape):
    """Counts forward and backward: 6 for each multiplied weight, and each query with half of the keys."""
    model, seq, _ = SHAPES[shape]
    dim, layers, heads, kv, ffn, vocab = MODELS[model]
    head = dim // heads
    weights = layers * (dim * head * 2 * (heads + kv) + 3 * dim * ffn + 2 * dim) + dim + vocab * dim
    return 6 * weights + 6 * layers * heads * head * seq


def train_coeus(options, dtype, threads, seq, batch, ranks=1):
    """Trains by bench/step.toml. Returns when it began, its output, and the seconds of each step but the first two."""
    output = WORK / "coeus"
    shutil.rmtree(output, ignore_errors=True)
    command = [ROOT / "build/coeus", "train", "bench/step.toml", f"--job.dump_folder={output}",
               f"--training.dataset_path={WORK / 'tokens.h5'}", "--training.shuffle=false", *COMPUTE[dtype],
               f"--training.threads={threads}", "--device=cpu", f"--training.seq_len={seq}",
               f"--training.local_batch_size={batch // ranks}", *options]
    if ranks > 1:
        mpirun = subprocess.run([ROOT / "tools/mpirun_command.sh", ROOT / "build"], capture_output=True, text=True, check=True)
        command = [*mpirun.stdout.split(), "-n", str(ranks), *command]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    begin = time.time()
    done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"coeus ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return begin, done.stdout, [r["step_s"] for r in records if "step_s" in r and r["step"] > 2]


def run_coeus(shape, dtype, threads, ranks=1, options=()):
    """Returns the median step's tokens per second, the GEMM rate that Coeus measured, the seconds to the first step."""
    model, seq, batch = SHAPES[shape]
    dim, layers, heads, kv, ffn, vocab = MODELS[model]
    sizes = [f"--model.dim={dim}", f"--model.n_layers={layers}", f"--model.n_heads={heads}", f"--model.n_kv_heads={kv}",
             f"--model.ffn_hidden={ffn}", f"--model.vocab_size={vocab}", "--profile"]
    begin, output, steps = train_coeus([*sizes, *options], dtype, threads, seq, batch, ranks)
    peak = re.search(r"(\d+) GF/s in GEMM", output)
    clock = re.search(r"\[coeus\] (\S+ \S+),(\d+) - info - Training starts", output)
    started = time.mktime(time.strptime(clock[1], "%Y-%m-%d %H:%M:%S")) + int(clock[2]) / 1000
    return seq * batch / statistics.median(steps), float(peak[1]) * 1e9, started - begin


def run_torch(python, shape, dtype, threads, steps):
    """Returns the median step's tokens per second, and PyTorch's version."""
    model, seq, batch = SHAPES[shape]
    environment = dict(os.environ, GLIBC_TUNABLES=ALLOCATOR, TORCHINDUCTOR_CACHE_DIR=str(WORK / "inductor"))
    program = [ROOT / "bench/torch_float8.py", TORCH_PROGRAM] if dtype == "f8" else [TORCH_PROGRAM]
    command = [python, *program, "--shape", model, "--seq", str(seq), "--batch", str(batch), "--steps", str(steps),
               "--dtype", dtype.replace("f8", "bf16"), "--threads", str(threads), "--compile"]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"torch_llama.py ended with {done.returncode}:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return result["tps_median"], result["torch"]


def reached(is_so):
    return "reached" if is_so else "MISSED"


def compare(python, shape, dtype, given, has_bf16):
    """Returns a row of the table, and PyTorch's version."""
    # without these instructions PyTorch emulates bfloat16, which is about 30 times slower than float32
    emulated = dtype != "f32" and not has_bf16
    torch_runs = 0 if not python else given.alternations if not emulated else int(given.emulated)
    ours, theirs, peaks, version = [], [], [], None
    for alternation in range(given.alternations):
        speed, peak, _ = run_coeus(shape, dtype, given.threads)
        ours.append(speed)
        peaks.append(peak)
        if alternation < torch_runs:
            long = emulated or dtype == "f8" or SHAPES[shape][1] > 4096
            speed, version = run_torch(python, shape, dtype, given.threads, 4 if long else 8)
            theirs.append(speed)
        print(f"{shape} {dtype} run {alternation + 1}: coeus {ours[-1]:,.0f} tok/s"
              + (f", PyTorch {theirs[-1]:,.0f} tok/s" if alternation < torch_runs else ""), flush=True)
    def share(speed):
        return f"{speed:,.0f} ({100 * speed * causal_flops_per_token(shape) / statistics.median(peaks):.0f} %)"
    mine = statistics.median(ours)
    if theirs:
        other = statistics.median(theirs)
        goal = GOALS.get((shape, dtype))
        note = "" if goal is None else f"{goal}: {reached(mine / other >= goal)}"
        return f"| {shape} | {dtype} | {share(mine)} | {share(other)} | {mine / other:.2f} | {note} |", version
    why = "not measured: this CPU emulates bf16 (--emulated)" if python else "not measured"
    return f"| {shape} | {dtype} | {share(mine)} | {why} | | |", None


def axes(batch):
    """Returns the options for two ranks along each axis of the mesh; the work is the same for all axes."""
    alone = ["--parallelism.data_parallel_shard_degree=1", f"--training.local_batch_size={batch}"]
    return {"FSDP": [],
            "replicas": ["--parallelism.data_parallel_replicate_degree=2", "--parallelism.data_parallel_shard_degree=1"],
            "tensor": alone + ["--parallelism.tensor_parallel_degree=2"],
            "context": alone + ["--parallelism.context_parallel_degree=2"],
            "pipeline": alone + ["--parallelism.pipeline_parallel_degree=2", "--parallelism.pipeline_parallel_schedule=1F1B"]}


def compare_ranks(shape, alternations):
    """Compares 2 ranks x 1 thread along each axis with 1 rank x 2 threads, and measures the start."""
    options = axes(SHAPES[shape][2])
    one, starts, two = [], [], {axis: [] for axis in options}
    for _ in range(alternations):
        speed, _, start = run_coeus(shape, "f32", 2)
        one.append(speed)
        starts.append(start)
        for axis in options:
            two[axis].append(run_coeus(shape, "f32", 1, ranks=2, options=options[axis])[0])
    one = statistics.median(one)
    lines = [f"{shape} f32, 2 ranks x 1 thread, compared with 1 rank x 2 threads ({one:,.0f} tok/s)\n",
             f"| axis | tok/s | ratio | goal {RANKS_GOAL} |\n|---|---:|---:|---|"]
    for axis, speeds in two.items():
        speed = statistics.median(speeds)
        lines.append(f"| {axis} | {speed:,.0f} | {speed / one:.2f} | {reached(speed / one >= RANKS_GOAL)} |")
    start = statistics.median(starts)
    lines.append(f"\nfrom the start of the program to its first step: {start:.2f} s, goal {START_GOAL} s: "
                 + reached(start < START_GOAL))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="any of " + ", ".join(SHAPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", default="f32,bf16,f8", help="any of f32, bf16, f8")
    parser.add_argument("--emulated", action="store_true",
                        help="measure PyTorch in bf16 and f8 even if this CPU has no instructions for it: a run of 4 steps, "
                             "4 minutes")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    model, has_bf16 = processor()
    python, absent = torch_python()
    write_tokens(WORK / "tokens.h5")

    rows, version = [], "absent"
    for shape in given.shapes.split(","):
        for dtype in given.dtypes.split(","):
            row, found = compare(python, shape, dtype, given, has_bf16)
            rows.append(row)
            version = found or version
    ranks = compare_ranks("debug-512", given.alternations) if given.threads == 2 else ""

    print(f"\n{model}, {os.cpu_count()} cores, {given.threads} threads; PyTorch {version}"
          + (f" ({absent})" if absent else ""))
    print("one rank; tokens/s, median of the runs, and the share of the machine's GEMM rate\n")
    print("| shape | type | coeus | PyTorch compiled | ratio | goal |\n|---|---|---:|---:|---:|---|")
    print("\n".join(rows))
    print(f"\n{ranks}")
    for shape in given.shapes.split(","):
        model, seq, batch = SHAPES[shape]
        print("{}: dim {}, {} layers, {} heads, {} kv heads, ffn {}, vocabulary {}; {} x {} tokens per step".format(
            shape, *MODELS[model], batch, seq))


if __name__ == "__main__":
    main()
