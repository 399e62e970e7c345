#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares products of rows grouped by expert with plain products of as many rows with one matrix.

    bench/grouped.py [--repetitions 3] [--threads 2]

The widths are those of Qwen 3's debugmodel_moe (64 experts) and of DeepSeek V3 16B (8 of its 64 experts). Each expert
has 64 or 256 rows. The products are the forward (nt), the gradient of the rows (nn) and the gradient of the matrices
(tn). The repetitions of all run in random order. A figure is a median, in GF/s of all threads.
"""
import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOALS = {64: 0.65, 256: 0.85}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--repetitions", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
given = parser.parse_args()
done = subprocess.run([ROOT / "build/bench/bench_kernels", "--benchmark_filter=^experts", "--benchmark_format=json",
                       f"--benchmark_repetitions={given.repetitions}", "--benchmark_enable_random_interleaving=true",
                       "--benchmark_min_time=0.1"],
                      env=dict(os.environ, OMP_NUM_THREADS=str(given.threads)), stdin=subprocess.DEVNULL,
                      capture_output=True, text=True, check=True)
repeated = {}
for entry in json.loads(done.stdout)["benchmarks"]:
    if entry["run_type"] != "iteration": continue
    # the counter is a rate of processor time
    repeated.setdefault(entry["run_name"], []).append(entry["GF/s"] * entry["cpu_time"] / entry["real_time"])
rates = {name: statistics.median(values) for name, values in repeated.items()}
print("| product | type | grouped, GF/s | plain, GF/s | ratio | goal |\n|---|---|---:|---:|---:|---|")
for name, rate in rates.items():
    if "/grouped " not in name: continue
    shape, rows, product, dtype = name.removeprefix("experts ").split("/")
    plain = rates[name.replace("/grouped ", "/plain ")]
    goal = GOALS[int(rows.split()[0])]
    print(f"| {shape}, {rows}, {product.split()[1]} | {dtype} | {rate:.0f} | {plain:.0f} | {rate / plain:.2f} | "
          f"{goal}: {'reached' if rate / plain >= goal else 'MISSED'} |")
