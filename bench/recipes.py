#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains inputs/llama3_debug.toml in bfloat16 and with each recipe of 8 bits on the data of `make run`, and draws the
losses: doc/float8_loss.svg.

    make run && bench/recipes.py [--program build/coeus] [--outputs outputs]

An interrupted run continues; a complete run is only read.

    bench/recipes.py --turns 3

compares the speed of training steps instead, of 100M parameters with 2 x 1024 tokens: each recipe, bfloat16 and float32
run in turns, on build/coeus. Prints the medians of tokens/s.
"""
import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import compare_torch
from curves import draw, read_curve, smoothed

ROOT = Path(__file__).resolve().parent.parent
FLOAT8 = "--model.converters=quantize.linear.float8"
RECIPES = {"bfloat16": [],
           "tensorwise": [FLOAT8],
           "rowwise": [FLOAT8, "--quantize.linear.float8.recipe_name=rowwise"],
           "mxfp8": ["--model.converters=quantize.linear.mx", "--quantize.linear.mx.recipe_name=mxfp8_rceil"]}
COLOURS = dict(zip(RECIPES, ("#202020", "#0060c0", "#c05000", "#208040")))

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", default="build/coeus")
parser.add_argument("--outputs", type=Path, default=ROOT / "outputs")
parser.add_argument("--turns", type=int, default=0)
arguments = parser.parse_args()
if arguments.turns:
    compare_torch.WORK.mkdir(parents=True, exist_ok=True)
    compare_torch.write_tokens(compare_torch.WORK / "tokens.h5")
    speeds = {name: [] for name in [*RECIPES, "float32"]}
    for _ in range(arguments.turns):
        for name, of_turns in speeds.items():
            dtype = "f32" if name == "float32" else "bf16"
            of_turns.append(compare_torch.run_coeus("small-1024", dtype, 2, options=RECIPES.get(name, []))[0])
            print(f"{name}: {of_turns[-1]:,.0f} tokens/s", flush=True)
    medians = {name: statistics.median(of_turns) for name, of_turns in speeds.items()}
    print("| step | tokens/s | of bfloat16 | of float32 |\n|---|---:|---:|---:|")
    for name, speed in medians.items():
        print(f"| {name} | {speed:,.0f} | {speed / medians['bfloat16']:.2f} | {speed / medians['float32']:.2f} |")
    sys.exit()
curves = {}
for name, options in RECIPES.items():
    folder = arguments.outputs / f"recipe_{name}"
    command = [arguments.program, "train", "inputs/llama3_debug.toml", f"--job.dump_folder={folder}",
               "--training.mixed_precision_param=bfloat16", *options]
    print(" ".join(map(str, command)), flush=True)
    subprocess.run(command, cwd=ROOT, check=True)
    curves[name] = smoothed(read_curve(folder, "loss"), 3)
    print(name, "validation loss", read_curve(folder, "validation_loss")[-1])
draw(ROOT / "doc/float8_loss.svg", curves, COLOURS, "loss")
