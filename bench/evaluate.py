#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the rate of `coeus evaluate` with transformers', in alternation, and one rank with two.

    bench/evaluate.py FOLDER TEXT.jsonl [--coeus build/coeus] [--alternations 3] [--context 1024] [--batch 4]
                      [--mb 8] [--transformers_mb 1] [--cores 2]

FOLDER is a Hugging Face folder (`coeus convert RUN FOLDER` writes one), TEXT.jsonl has documents. Both score every
token of the first megabytes of the documents, in windows of --context tokens without overlap, in float32 on CPUs.
Coeus's times are those of the whole program: start, tokenizing, scores. transformers' are those of the forward passes
and of the scores alone, without import, loading and tokenizing. Without transformers, only Coeus is measured. The table
shows medians; compare ratios, not absolute figures of different days.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def first_bytes(source, target, most):
    """Copies whole lines of JSON until their texts have `most` bytes."""
    size = 0
    with open(source) as lines, open(target, "w") as out:
        for line in lines:
            size += len(json.loads(line)["text"].encode())
            out.write(line)
            if size >= most:
                return
    print(f"{source} has only {size / 1e6:.1f} MB of text", file=sys.stderr)


def coeus(options, text, ranks):
    """Seconds of a whole run on `ranks` ranks, each with half of the cores."""
    threads = max(1, options.cores // 2)
    command = ["mpirun", "-n", str(ranks), "--bind-to", "none", "--oversubscribe"] if ranks > 1 else []
    command += [options.coeus, "evaluate", options.folder, text, "--dtype", "float32",
                "--context", str(options.context), "--batch", str(options.batch), f"--training.threads={threads}"]
    allowed = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=allowed)
    seconds = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return seconds


class Transformers:
    def __init__(self, options, text):
        import torch
        import transformers
        torch.set_num_threads(options.cores)
        self.torch, self.options = torch, options
        self.model = transformers.AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.folder)
        windows, n = [], options.context
        for line in open(text):
            ids = tokenizer(json.loads(line)["text"])["input_ids"]
            windows += [ids[i:i + n + 1] for i in range(0, len(ids) - 1, n)]
        # equal lengths first, as lm-eval sorts them, so that little is padded
        windows.sort(key=len, reverse=True)
        self.batches = [windows[i:i + options.batch] for i in range(0, len(windows), options.batch)]

    def rate(self):
        torch = self.torch
        begin = time.perf_counter()
        with torch.inference_mode():
            for batch in self.batches:
                longest = max(map(len, batch)) - 1
                rows = torch.tensor([window[:-1] + [0] * (longest - len(window) + 1) for window in batch])
                labels = torch.tensor([window[1:] + [-100] * (longest - len(window) + 1) for window in batch])
                logits = self.model(rows).logits.float()
                torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").sum().item()
        return self.options.transformers_mb * 1e3 / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("text")
    parser.add_argument("--coeus", default=str(ROOT / "build/coeus"))
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--mb", type=float, default=8)
    parser.add_argument("--transformers_mb", type=float, default=1)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        text, little = str(Path(folder) / "text.jsonl"), str(Path(folder) / "little.jsonl")
        first_bytes(options.text, text, options.mb * 1e6)
        first_bytes(options.text, little, options.transformers_mb * 1e6)
        try:
            peer = Transformers(options, little)
        except ImportError as error:
            print(f"transformers is not measured: {error}")
            peer = None
        rates = {"coeus, 1 rank": [], "coeus, 2 ranks": [], "transformers": []}
        for _ in range(options.alternations):
            for ranks, name in ((1, "coeus, 1 rank"), (2, "coeus, 2 ranks")):
                seconds = coeus(options, text, ranks)
                rates[name].append(options.mb * 1e3 / seconds)
            if peer:
                rates["transformers"].append(peer.rate())
    medians = {name: statistics.median(all) for name, all in rates.items() if all}
    print("| | kB of text a second, median | of transformers | of 1 rank |\n|---|---:|---:|---:|")
    for name, rate in medians.items():
        by_peer = f"{rate / medians['transformers']:.2f}" if "transformers" in medians else ""
        print(f"| {name} | {rate:,.1f} | {by_peer} | {rate / medians['coeus, 1 rank']:.2f} |")


if __name__ == "__main__":
    main()
