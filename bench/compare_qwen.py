#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares steps of a dense Qwen 3 with steps of a Llama of the same sizes, in alternation on this machine.

    bench/compare_qwen.py [--alternations 3] [--threads 2] [--dtypes f32,bf16]

Both have the sizes of qwen3 debugmodel. Qwen also has norms of queries and keys, which Llama lacks, and other places of
the elements that RoPE rotates. A step has 2,048 tokens. A figure is the median of all steps but the first two of each
run.
"""
import argparse
import statistics

from compare_torch import WORK, train_coeus, write_tokens

LENGTH, BATCH = 512, 4
MODELS = {"qwen3": ["--model.name=qwen3", "--model.flavor=debugmodel"],
          "llama3": ["--model.name=llama3", "--model.flavor=debugmodel", "--model.dim=256", "--model.n_layers=8",
                     "--model.n_heads=16", "--model.n_kv_heads=8", "--model.head_dim=128", "--model.ffn_hidden=3072",
                     "--model.tied_embeddings"]}
GOAL = 1.03


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--alternations", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--dtypes", default="f32,bf16")
given = parser.parse_args()
WORK.mkdir(parents=True, exist_ok=True)
write_tokens(WORK / "tokens.h5")
print("| type | Qwen 3, s | Llama, s | ratio | goal |\n|---|---:|---:|---:|---|")
for dtype in given.dtypes.split(","):
    times = {name: [] for name in MODELS}
    for _ in range(given.alternations):
        for name, options in MODELS.items():
            times[name] += train_coeus([*options, "--training.steps=8"], dtype, given.threads, LENGTH, BATCH)[-1]
    qwen, llama = (statistics.median(times[name]) for name in MODELS)
    print(f"| {dtype} | {qwen:.3f} | {llama:.3f} | {qwen / llama:.3f} | "
          f"{GOAL}: {'reached' if qwen / llama <= GOAL else 'MISSED'} |", flush=True)
