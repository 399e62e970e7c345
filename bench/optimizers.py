#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Muon with AdamW on the data of `make run`, 300 steps each, and draws the losses: doc/muon.svg.

    make run && bench/optimizers.py [--ranks 2] [--steps 300] [--program build/coeus]

Both runs use the deck inputs/llama3_debug.toml, the same learning rate and the same samples; Muon's update is scaled to
the size of AdamW's (adjust_lr_fn = match_rms_adamw). An interrupted run continues; a complete run is only read.
"""
import argparse
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = {"AdamW": [], "Muon": ["--optimizer.name=Muon", "--optimizer.adjust_lr_fn=match_rms_adamw"]}
COLOURS = {"AdamW": "#777777", "Muon": "#0060c0"}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 400, 60, 20, 20, 50


def train(name, options):
    folder = ROOT / "outputs" / f"optimizer_{name.lower()}"
    mpirun = subprocess.run(["tools/mpirun_command.sh", "build"], cwd=ROOT, capture_output=True, text=True, check=True)
    command = [*mpirun.stdout.split(), "-n", str(arguments.ranks), arguments.program, "train", "inputs/llama3_debug.toml",
               f"--job.dump_folder={folder}", f"--training.steps={arguments.steps}", "--metrics.log_freq=1", *options]
    print(" ".join(command), flush=True)
    subprocess.run(command, cwd=ROOT, check=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def draw(losses):
    """Draws the losses over the steps, each point the mean of the last ten."""
    smooth = {name: [(step, sum(loss for _, loss in points[max(0, i - 9):i + 1]) / min(i + 1, 10))
                     for i, (step, _) in enumerate(points)] for name, points in losses.items()}
    values = [loss for points in smooth.values() for _, loss in points]
    low, high = int(min(values) * 2) / 2, int(max(values) * 2 + 1) / 2
    last = max(step for points in smooth.values() for step, _ in points)

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for i in range(int((high - low) * 2) + 1):
        loss = low + i / 2
        parts.append(f'<path d="M{LEFT} {y(loss):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
                     f'<text x="{LEFT - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.1f}</text>')
    for step in range(0, last + 1, 50):
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{step}</text>')
    for i, (name, points) in enumerate(smooth.items()):
        path = "M" + "L".join(f"{x(step):.1f} {y(loss):.1f}" for step, loss in points)
        parts.append(f'<path d="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>'
                     f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 24 + 20 * i}" text-anchor="end" fill="{COLOURS[name]}">'
                     f"{name}: {points[-1][1]:.3f}</text>")
    parts.append(f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>'
                 f'<text x="16" y="{HEIGHT / 2}" transform="rotate(-90 16 {HEIGHT / 2})" text-anchor="middle">loss</text></svg>')
    (ROOT / "doc/muon.svg").write_text("\n".join(parts) + "\n")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--program", default="build/coeus")
arguments = parser.parse_args()
draw({name: train(name, options) for name, options in RUNS.items()})
