#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains inputs/llama3_debug.toml in bfloat16 and with each recipe of 8 bits on the data of `make run`, and draws the
losses: doc/float8_loss.svg.

    make run && bench/recipes.py [--program build/coeus] [--outputs outputs]

An interrupted run continues; a complete run is only read.
"""
import argparse
import subprocess
from pathlib import Path

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
arguments = parser.parse_args()
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
