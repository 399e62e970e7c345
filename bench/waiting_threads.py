#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how threads should wait: bench/waiting_threads.py [--coeus FILE] [--turns 5] [--steps 40] [--threads N].
A small model trains with each way of waiting in turn, first with nothing else on the machine, then beside as many busy
processes as it has threads. Prints the median tokens/s of each, and its ratio to libgomp's default in the same turn."""
import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
WAYS = {"libgomp's default": "GOMP_SPINCOUNT=300000", "30,000 looks": "GOMP_SPINCOUNT=30000",
        "10,000 looks": "GOMP_SPINCOUNT=10000", "3,000 looks": "GOMP_SPINCOUNT=3000",
        "1,000 looks": "GOMP_SPINCOUNT=1000", "passive": "OMP_WAIT_POLICY=passive"}


def spin():
    while True: pass


def rate(arguments, setting, folder):
    """Tokens per second over the second half of a run."""
    name, value = setting.split("=")
    environment = {key: text for key, text in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    run = folder / "run"
    subprocess.run([*arguments, f"--job.dump_folder={run}"], env=environment | {name: value}, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    last = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
    for file in run.glob("*.jsonl"): file.unlink()
    return last["tps"]


def table(title, turns):
    print(f"{title}\n{'waiting':20} {'tokens/s':>9} {'ratio':>6}")
    usual = turns[next(iter(WAYS))]
    for name, rates in turns.items():
        ratio = statistics.median(one / other for one, other in zip(rates, usual))
        print(f"{name:20} {statistics.median(rates):9,.0f} {ratio:6.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coeus", default=str(ROOT / "build/coeus"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coeus-waits-") as name:
        folder = pathlib.Path(name)
        text, tokenizer, tokens = folder / "text.txt", folder / "tokenizer", folder / "tokens.h5"
        text.write_text("".join(file.read_text() for file in sorted((ROOT / "doc").glob("*.md"))))
        for words in (["tokenizer", text, "--vocab_size", "384", "--output", tokenizer],
                      ["tokenize", text, "--tokenizer", tokenizer, "--output", tokens]):
            subprocess.run([given.coeus, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        arguments = [given.coeus, "train", str(ROOT / "examples/pretrain_tiny/tiny.toml"),
                     f"--training.threads={given.threads}", f"--training.dataset_path={tokens}",
                     f"--model.hf_assets_path={tokenizer}", f"--training.steps={given.steps}",
                     f"--metrics.log_freq={given.steps // 2}", "--checkpoint.enable=false",
                     "--validation.enable=false", "--lr_scheduler.warmup_steps=1"]
        for title, load in (("a quiet machine", 0), ("beside busy processes", given.threads)):
            busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(load)]
            for process in busy: process.start()
            turns = {way: [] for way in WAYS}
            for _ in range(given.turns):
                for way, setting in WAYS.items(): turns[way].append(rate(arguments, setting, folder))
            for process in busy: process.kill()
            table(f"{title}, {given.threads} threads, load {os.getloadavg()[0]:.1f}:", turns)


if __name__ == "__main__":
    main()
