#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a table of the communication for which the computation waits, one row for each mesh: by the roofline of a dry
run (doc/machines.md), so that no GPU is needed.

    bench/exposed.py                              # the meshes of doc/performance.md, on H100s
    bench/exposed.py --gpu mine.toml
    bench/exposed.py my.toml --ranks 16           # your own deck
    bench/exposed.py my.toml --ranks 16 -- --parallelism.fsdp_prefetch=2

Times are those of a step, in milliseconds. "idle" is the wait for other stages of a pipeline. "serial" is how much longer
a step takes if NCCL runs the operations of all communicators one after the other (doc/nccl.md).
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PURPOSES = {"weights": "gathers of weights", "gradients": "sums of gradients", "tensor": "tensor parallelism",
            "context": "keys and values", "stages": "messages of stages", "experts": "rows of experts"}
P = "--parallelism."
SHARD, TP, CP, PP, EP = (P + name for name in (
    "data_parallel_shard_degree=", "tensor_parallel_degree=", "context_parallel_degree=", "pipeline_parallel_degree=",
    "expert_parallel_degree="))
LOCAL, HALVES = "--training.local_batch_size=", P + "expert_parallel_overlap=true"
LLAMA = "tests/data/roofline/roofline_d.toml"  # 256 sequences of 8192 tokens a step
STAGES = [f"{PP}4", f"{SHARD}2", "--training.local_batch_size=16"]
# name, deck, ranks, options
MESHES = [
    ("8B, FSDP 8", LLAMA, 8, []),
    ("8B, FSDP 8, prefetch 2", LLAMA, 8, [f"{P}fsdp_prefetch=2"]),
    ("8B, FSDP 8, sums once a step", LLAMA, 8, [f"{P}fsdp_sum_gradients=step"]),
    ("8B, replicas 2, FSDP 4", LLAMA, 8, [f"{P}data_parallel_replicate_degree=2", f"{SHARD}4"]),
    ("8B, FSDP 4, TP 2", LLAMA, 8, [f"{SHARD}4", f"{TP}2"]),
    ("8B, FSDP 4, TP 2, asynchronous", LLAMA, 8, [f"{SHARD}4", f"{TP}2", f"{P}enable_async_tensor_parallel"]),
    ("8B, TP 8", LLAMA, 8, [f"{SHARD}1", f"{TP}8"]),
    ("8B, TP 8, asynchronous", LLAMA, 8, [f"{SHARD}1", f"{TP}8", f"{P}enable_async_tensor_parallel"]),
    ("8B, FSDP 2, CP 4, all-gather", LLAMA, 8, [f"{SHARD}2", f"{CP}4"]),
    ("8B, FSDP 2, CP 4, ring", LLAMA, 8, [f"{SHARD}2", f"{CP}4", f"{P}context_parallel_rotate_method=alltoall"]),
    ("8B, FSDP 2, CP 4, ring, sums once a step", LLAMA, 8,
     [f"{SHARD}2", f"{CP}4", f"{P}context_parallel_rotate_method=alltoall", f"{P}fsdp_sum_gradients=step"]),
    ("8B, FSDP 2, PP 4, 1F1B", LLAMA, 8, STAGES),
    ("8B, FSDP 2, PP 4, interleaved", LLAMA, 8, [*STAGES, f"{P}pipeline_parallel_schedule=Interleaved1F1B"]),
    ("8B, FSDP 2, PP 4, zero bubble", LLAMA, 8, [*STAGES, f"{P}pipeline_parallel_schedule=ZBVZeroBubble"]),
    ("8B, 2 nodes, FSDP 16", LLAMA, 16, [f"{SHARD}16"]),
    ("8B, 2 nodes, FSDP 16, prefetch 2", LLAMA, 16, [f"{SHARD}16", f"{P}fsdp_prefetch=2"]),
    ("8B, 2 nodes, replicas 2, FSDP 8", LLAMA, 16, [f"{P}data_parallel_replicate_degree=2"]),
    ("8B, 2 nodes, FSDP 2, TP 8", LLAMA, 16, [f"{SHARD}2", f"{TP}8"]),
    ("DeepSeek 16B, FSDP 8, EP 8", "inputs/deepseek_v3_16b.toml", 8, []),
    ("DeepSeek 16B, FSDP 8, EP 8, halves in turn", "inputs/deepseek_v3_16b.toml", 8, [HALVES]),
    ("DeepSeek 16B, FSDP 8, EP 1", "inputs/deepseek_v3_16b.toml", 8, [f"{EP}1"]),
    ("Qwen 30B, 2 nodes, FSDP 16, EP 8", "inputs/qwen3_30b_a3b.toml", 16, []),
    ("Qwen 30B, 2 nodes, FSDP 16, EP 8, local batch 2", "inputs/qwen3_30b_a3b.toml", 16, [f"{LOCAL}2"]),
    ("Qwen 30B, 2 nodes, FSDP 16, EP 8, local batch 2, halves in turn", "inputs/qwen3_30b_a3b.toml", 16,
     [f"{LOCAL}2", HALVES]),
]


def numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(r"[\d.,]*\d", text)]


def exposed_of(dry_run):
    """Returns what the roofline in the text of a dry run says of a step, in milliseconds: step, exposed (by purpose),
    idle, serial (None if there is one order only), overlapped (None if it is the order of `step`)."""
    step = re.search(r"^  step of ([\d,]+) local batch(?:es)?: ([\d.]+) ms", dry_run, re.MULTILINE)
    if not step:
        raise ValueError(re.search(r"No roofline.*", dry_run)[0] if "No roofline" in dry_run else "no roofline")
    batches = int(step[1].replace(",", ""))
    row = {"step": float(step[2]), "exposed": {}, "idle": 0.0, "serial": None, "overlapped": None}
    if idle := re.search(r"^  waits for other stages  +([\d.]+)", dry_run, re.MULTILINE):
        row["idle"] = batches * float(idle[1])
    if table := re.search(r"^  communication, .*\n((?:  .*\n)*?)  sum ", dry_run, re.MULTILINE):
        for line in table[1].splitlines():
            name, figures = line[:34].strip(), numbers(line[34:])
            row["exposed"][name] = batches * figures[1] + figures[3]
    if other := re.search(r"^  (one after the other|overlapped): .* a step ([\d.]+) ms", dry_run, re.MULTILINE):
        is_serial = other[1] != "overlapped"
        row["serial"] = float(other[2]) if is_serial else row["step"]
        row["overlapped"] = None if is_serial else float(other[2])
    return row


def line_of(name, row):
    """Returns a row of the table."""
    exposed = [row["exposed"].get(purpose) for purpose in PURPOSES.values()]
    others = sum(ms for purpose, ms in row["exposed"].items() if purpose not in PURPOSES.values())
    total = sum(ms or 0 for ms in exposed) + others
    cells = [f"{row['step']:,.0f}"] + ["" if ms is None else f"{ms:,.0f}" for ms in exposed]
    cells += [f"{100 * total / row['step']:.1f} %", f"{100 * row['idle'] / row['step']:.1f} %" if row["idle"] else ""]
    cells.append("" if row["serial"] is None else f"{100 * (row['serial'] / (row['overlapped'] or row['step']) - 1):+.1f} %")
    return "| " + " | ".join([name, *cells]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deck", nargs="?", help="default: the meshes of doc/performance.md")
    parser.add_argument("options", nargs="*", help="of coeus train, after --")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--gpu", default="h100-sxm")
    parser.add_argument("--program", default=str(ROOT / "build/coeus"))
    arguments = parser.parse_args()
    meshes = MESHES
    if arguments.deck:
        meshes = [(Path(arguments.deck).stem, str(Path(arguments.deck).resolve()), arguments.ranks, arguments.options)]
    print("| mesh | step | " + " | ".join(PURPOSES) + " | exposed | idle | serial |")
    print("|---|" + (len(PURPOSES) + 4) * "---:|")
    for name, deck, ranks, options in meshes:
        command = [arguments.program, "train", deck, "--dry_run", f"--gpu={arguments.gpu}", f"--ranks={ranks}", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        try:
            print(line_of(name, exposed_of(done.stdout + done.stderr)), flush=True)
        except ValueError as error:
            sys.exit(f"{name}: {error}\n{' '.join(command)}\n{(done.stdout + done.stderr).strip()}")


if __name__ == "__main__":
    main()
