#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Muon with AdamW on the data of `make run`, 300 steps each, and draws the losses: doc/muon.svg.

    make run && bench/optimizers.py [--ranks 2] [--steps 300] [--program build/coeus]

Both runs use the deck inputs/llama3_debug.toml, the same learning rate and the same samples; Muon's update is scaled to
the size of AdamW's (adjust_lr_fn = match_rms_adamw). An interrupted run continues; a complete run is only read.
"""
import argparse
import subprocess
from pathlib import Path

from curves import draw, read_curve, smoothed

ROOT = Path(__file__).resolve().parent.parent
RUNS = {"AdamW": [], "Muon": ["--optimizer.name=Muon", "--optimizer.adjust_lr_fn=match_rms_adamw"]}
COLOURS = {"AdamW": "#777777", "Muon": "#0060c0"}


def train(name, options):
    folder = ROOT / "outputs" / f"optimizer_{name.lower()}"
    mpirun = subprocess.run(["tools/mpirun_command.sh", "build"], cwd=ROOT, capture_output=True, text=True, check=True)
    command = [*mpirun.stdout.split(), "-n", str(arguments.ranks), arguments.program, "train", "inputs/llama3_debug.toml",
               f"--job.dump_folder={folder}", f"--training.steps={arguments.steps}", "--metrics.log_freq=1", *options]
    print(" ".join(command), flush=True)
    subprocess.run(command, cwd=ROOT, check=True)
    return smoothed(read_curve(folder, "loss"), 10)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--program", default="build/coeus")
arguments = parser.parse_args()
draw(ROOT / "doc/muon.svg", {name: train(name, options) for name, options in RUNS.items()}, COLOURS, "loss")
