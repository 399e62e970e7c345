#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that systems compute the same losses and can read each other's checkpoints: exchange.py NAME=ROOT NAME=ROOT...

Each ROOT is a root file system that debian.sh or aarch64.sh keeps, with a built /coeus/build/coeus. In each root, a
small Llama takes 20 steps in float64. Then every other system resumes that run at step 10 and writes the state that it
has loaded. The losses must agree to 1e-11, and the written state must have the same bits. COEUS_SKIP=1: ends with 77
(skipped, for ctest) if there is no such root."""
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

try:
    import h5py
except ImportError:
    h5py = None  # only differing_arrays() needs it

HERE = Path(__file__).resolve().parents[2]
STEPS = 20
LIMIT = 1e-11  # largest relative difference between losses
MIDDLE = "checkpoint/step-00000010.h5"
INSIDE = "/exchange"


class System:
    def __init__(self, argument):
        self.name, _, root = argument.rpartition("=")
        self.root = Path(root)
        if not (self.root / "coeus/build/coeus").exists():
            if os.environ.get("COEUS_SKIP") == "1":
                print(f"skipped: there is no complete root {self.root}")
                sys.exit(77)
            sys.exit(f"exchange.py: {argument}: there is no {self.root}/coeus/build/coeus; give each system as NAME=ROOT")
        self.folder = self.root / INSIDE[1:]
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        text = "".join(file.read_text() for file in sorted((HERE / "doc").glob("*.md")))
        (self.folder / "text.txt").write_text(text)
        shutil.copy(HERE / "examples/resume_elsewhere/small.toml", self.folder)

    def run(self, arguments):
        """Runs coeus with these arguments inside the root."""
        mounts = " && ".join((f"mount -t proc proc {self.root}/proc", f"mount --rbind /dev {self.root}/dev",
                              f"mount --rbind /sys {self.root}/sys"))
        inside = f"cd {INSIDE} && HOME=/root /coeus/build/coeus {arguments}"
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                               f"{mounts} && exec chroot {self.root} sh -c '{inside}'"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.name}: coeus {arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def train(self, run):
        """Trains to the last step and returns the loss of each step."""
        self.run(f"train small.toml --job.dump_folder={run} --training.steps={STEPS} --metrics.log_freq=1")
        lines = [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}


def furthest(losses, others, first=1):
    """Returns the largest relative difference from step `first` on; infinity if a step is missing or a loss not finite."""
    steps = range(first, STEPS + 1)
    if not all(step in run and math.isfinite(run[step]) for step in steps for run in (losses, others)):
        return math.inf
    return max(abs(losses[step] - others[step]) / abs(losses[step]) for step in steps)


def differing_arrays(a, b):
    """Returns the number of arrays in two files and the names of those that differ in type, shape or bytes."""
    def arrays(file):
        found = {}
        file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        return {name: (str(array.dtype), array.shape, array[()].tobytes()) for name, array in found.items()}

    with h5py.File(a) as left, h5py.File(b) as right:
        ours, theirs = arrays(left), arrays(right)
    names = sorted(ours.keys() | theirs.keys())
    return len(names), [name for name in names if ours.get(name) != theirs.get(name)]


def compare(systems):
    """Prints the result of each comparison and returns the number of failures."""
    failed = 0

    def check(what, good, detail=""):
        nonlocal failed
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {what}{detail}", flush=True)

    for system in systems:
        system.run("tokenizer text.txt --vocab_size 512 --output tokenizer")
        system.losses = system.train("run")
    first = systems[0]
    for system in systems[1:]:
        same = len({(of.folder / "tokenizer/tokenizer.json").read_bytes() for of in (first, system)}) == 1
        check(f"{first.name} and {system.name}: the same tokenizer", same)
    for a in systems:
        for b in systems:
            if a is b:
                continue
            apart = furthest(a.losses, b.losses)
            check(f"{a.name} and {b.name}: {STEPS} steps", apart <= LIMIT, f", losses differ by {apart:.1e}")
            run = f"from_{systems.index(a)}"
            (b.folder / run / "checkpoint").mkdir(parents=True)
            shutil.copy(a.folder / "run" / MIDDLE, b.folder / run / MIDDLE)
            apart = furthest(a.losses, b.train(run), 11)
            check(f"{b.name} resumes the run of {a.name} at step 10", apart <= LIMIT, f", losses differ by {apart:.1e}")
            b.run(f"info {run}/{MIDDLE} --verify")
            b.run(f"convert {run}/{MIDDLE} loaded_{systems.index(a)}.h5")
            count, differing = differing_arrays(a.folder / "run" / MIDDLE, b.folder / f"loaded_{systems.index(a)}.h5")
            check(f"{b.name} loads and writes the bits of {a.name}'s {count} arrays", count > 0 and not differing,
                  ": " + ", ".join(differing) if differing else "")
    return failed


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(1 if compare([System(argument) for argument in sys.argv[1:]]) else 0)
