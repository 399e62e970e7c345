#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains inputs/qwen3_debug.toml, and inputs/deepseek_v3_debug.toml with and without balancing of the experts, on the
data of `make run`, and draws the losses and the largest load: doc/experts_loss.svg, doc/experts_load.svg.

    make run && bench/balance.py [--program build/coeus] [--outputs outputs]

An interrupted run continues; a complete run is only read.
"""
import argparse
import subprocess
from pathlib import Path

from curves import draw, read_curve, smoothed

ROOT = Path(__file__).resolve().parent.parent
RATES = {"deepseek_v3, rate 0.001": "0.001", "deepseek_v3, rate 0": "0"}
DENSE = "qwen3"
COLOURS = dict(zip((*RATES, DENSE), ("#0060c0", "#c05000", "#208040")))


def train(name, deck, *options):
    folder = arguments.outputs / name
    command = [arguments.program, "train", deck, f"--job.dump_folder={folder}", "--metrics.log_freq=5", *options]
    print(" ".join(map(str, command)), flush=True)
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", default="build/coeus")
parser.add_argument("--outputs", type=Path, default=ROOT / "outputs")
arguments = parser.parse_args()
folders = {name: train(f"balance_{rate}", "inputs/deepseek_v3_debug.toml", f"--model.moe.load_balance_coeff={rate}")
           for name, rate in RATES.items()}
dense = train("qwen3_curve", "inputs/qwen3_debug.toml")
draw(ROOT / "doc/experts_loss.svg",
     {name: smoothed(read_curve(folder, "loss"), 3) for name, folder in {**folders, DENSE: dense}.items()}, COLOURS, "loss")
draw(ROOT / "doc/experts_load.svg",
     {name: smoothed(read_curve(folder, "moe_load_max"), 3) for name, folder in folders.items()},
     COLOURS, "largest load of an expert, 1: the mean", digits=2)
