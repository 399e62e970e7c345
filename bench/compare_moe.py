#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares forward and backward of models with experts in Coeus and in PyTorch on this machine, in alternation.

    bench/compare_moe.py [--shapes debug,slice] [--dtypes f32,bf16] [--alternations 3] [--threads 2] [--python PYTHON]

debug has the shape of qwen3 debugmodel_moe (8 layers, 64 experts of 768, 8 of them for each token); slice is one layer
of the shape of DeepSeek V3 16B (dim 2048, 64 experts of 1408, 6 for each token, usual attention). A step has 2,048
tokens. PyTorch's program is torch_moe.py in each of its forms: a loop of products or grouped_mm, eager or compiled. The
best of them counts. A figure is the median step after two warm-up steps, without the optimizer: Coeus's profile says
how long Adam and the norm take. PyTorch is taken from PYTHON, or installed as compare_torch.py does.
"""
import argparse
import json
import os
import re
import statistics
import subprocess

from compare_torch import ALLOCATOR, ROOT, WORK, torch_python, train_coeus, write_tokens

LENGTH, BATCH = 512, 4
SHAPES = {"debug": ["--model.flavor=debugmodel_moe"],
          "slice": ["--model.flavor=debugmodel_moe", "--model.dim=2048", "--model.n_layers=1", "--model.n_heads=16",
                    "--model.n_kv_heads=16", "--model.moe.num_experts=64", "--model.moe.top_k=6", "--model.moe.hidden=1408"]}
FORMS = [(form, compiled) for form in ("loop", "grouped") for compiled in (False, True)]
GOAL = 1.3
OPTIMIZER = ("adam", "sum_of_squares")  # its kernels


def run_coeus(shape, dtype, threads):
    """Returns the seconds of forward and backward."""
    options = ["--model.name=qwen3", *SHAPES[shape], "--training.steps=8", "--profile"]
    _, output, steps = train_coeus(options, dtype, threads, LENGTH, BATCH)
    shares = dict(re.findall(r"^  (\w+) +([\d.]+)%", output, re.MULTILINE))
    return statistics.median(steps) * (1 - sum(float(shares[name]) for name in OPTIMIZER) / 100)


def run_torch(python, shape, dtype, threads, form, compiled):
    """Returns the seconds of forward and backward, or None if PyTorch cannot run this form."""
    environment = dict(os.environ, GLIBC_TUNABLES=ALLOCATOR, TORCHINDUCTOR_CACHE_DIR=str(WORK / "inductor"))
    command = [python, ROOT / "bench/torch_moe.py", "--shape", shape, "--form", form, "--dtype", dtype, "--threads",
               str(threads), "--length", str(LENGTH), "--batch", str(BATCH), *(["--compile"] if compiled else [])]
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=given.limit)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        print(done.stderr.strip().splitlines()[-1] if done.stderr else "PyTorch failed", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])["seconds"]


def compare(python, shape, dtype):
    """Returns a row of the table."""
    ours, theirs = [], {}
    for _ in range(given.alternations):
        ours.append(run_coeus(shape, dtype, given.threads))
        for form, compiled in FORMS:
            name = f"{form}, {'compiled' if compiled else 'eager'}"
            if name in theirs and theirs[name] is None: continue
            seconds = run_torch(python, shape, dtype, given.threads, form, compiled) if python else None
            if seconds is None:
                theirs.setdefault(name, None)
            else:
                theirs.setdefault(name, []).append(seconds)
        print(shape, dtype, "coeus", f"{ours[-1]:.2f} s,", {n: t and round(t[-1], 2) for n, t in theirs.items()}, flush=True)
    mine = statistics.median(ours)
    medians = {name: statistics.median(times) for name, times in theirs.items() if times}
    if not medians: return f"| {shape} | {dtype} | {mine:.2f} | not measured | | |"
    best = min(medians, key=medians.get)
    ratio = medians[best] / mine
    return (f"| {shape} | {dtype} | {mine:.2f} | {medians[best]:.2f} ({best}) | {ratio:.2f} | "
            f"{GOAL}: {'reached' if ratio >= GOAL else 'MISSED'} |")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--shapes", default="debug,slice")
parser.add_argument("--dtypes", default="f32,bf16")
parser.add_argument("--alternations", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--limit", type=int, default=300, help="seconds after which a form of PyTorch is given up")
parser.add_argument("--python", help="a Python with PyTorch")
given = parser.parse_args()
WORK.mkdir(parents=True, exist_ok=True)
write_tokens(WORK / "tokens.h5")
found, why = (given.python, None) if given.python else torch_python()
if why: print(f"PyTorch is not measured: {why}")
rows = [compare(found, shape, dtype) for shape in given.shapes.split(",") for dtype in given.dtypes.split(",")]
print("\n| shape | type | Coeus, s | PyTorch, s (its best form) | ratio | goal |\n|---|---|---:|---:|---:|---|\n" + "\n".join(rows))
