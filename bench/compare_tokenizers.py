#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares encoding and BPE training of Coeus with tiktoken and Hugging Face's tokenizers, in alternation.

    bench/compare_tokenizers.py [--alternations 5] [--threads 2] [--vocab_size 2048]

The text is Debian's dict-gcide. Training uses its first 20 MB: Coeus is measured as a whole program that reads and
writes files, the library without reading files. Encoding uses the next 8 MB, in memory, with the vocabulary just
trained, in blocks of 2000 lines; the libraries must give as many tokens as Coeus. Both libraries are installed from
PyPI into build/bench/tokenizers; if that fails, only Coeus is measured. The table shows medians. Compare ratios, not
absolute figures of different days.
"""
import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/bench"
DICTIONARY = Path("/usr/share/dictd/gcide.dict.dz")
TRAINED, MEASURED = 20_000_000, 8_000_000


def whole_lines(text, begin, size):
    """Returns the whole lines within text[begin:begin + size]."""
    first = text.index(b"\n", begin) + 1 if begin else 0
    return text[first:text.rindex(b"\n", first, begin + size) + 1]


def make_texts():
    text = gzip.open(DICTIONARY).read().decode(errors="ignore").encode()
    paths = WORK / "train.txt", WORK / "encode.txt"
    WORK.mkdir(parents=True, exist_ok=True)
    paths[0].write_bytes(whole_lines(text, 0, TRAINED))
    paths[1].write_bytes(whole_lines(text, TRAINED, MEASURED))
    return paths


def library_python():
    """Returns the Python of an environment with both libraries and None, or None and the reason why there is none."""
    folder = WORK / "tokenizers"
    python, ready = folder / "bin/python", folder / "ready"
    if ready.exists():
        return python, None
    print("tiktoken, tokenizers: installing from PyPI into build/bench/tokenizers", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--quiet", "tiktoken", "tokenizers"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            return None, str(error)
        if done.returncode:
            return None, (done.stderr or done.stdout).strip().splitlines()[-1]
    ready.touch()
    return python, None


# The work of the libraries. This script, started by the Python of library_python(), does it and prints
# {"seconds", "tokens"}.

def byte_symbols():
    """Returns a map from each symbol of a byte-level vocabulary to its byte."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {chr(b): b for b in keep} | {chr(256 + i): b for i, b in enumerate(rest)}


def expression(folder):
    return json.loads((folder / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]


def blocks(text):
    lines = text.read_text().splitlines(keepends=True)
    return ["".join(lines[i:i + 2000]) for i in range(0, len(lines), 2000)]


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def encode_with_tiktoken(folder, text, threads):
    import tiktoken
    symbols = byte_symbols()
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    encoding = tiktoken.Encoding("bench", pat_str=expression(folder), special_tokens={},
                                 mergeable_ranks={bytes(symbols[c] for c in token): i for token, i in vocab.items()})
    parts = blocks(text)
    encoding.encode_ordinary(parts[0])
    seconds, ids = timed(lambda: encoding.encode_ordinary_batch(parts, num_threads=threads))
    return seconds, sum(map(len, ids))


def encode_with_tokenizers(folder, text, _threads):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    parts = blocks(text)
    tokenizer.encode_batch_fast(parts[:1], add_special_tokens=False)
    seconds, ids = timed(lambda: tokenizer.encode_batch_fast(parts, add_special_tokens=False))
    return seconds, sum(len(e.ids) for e in ids)


def train_with_tokenizers(folder, text, _threads):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    vocab_size = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression(folder)), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    lines = text.read_text().splitlines(keepends=True)
    seconds, _ = timed(lambda: tokenizer.train_from_iterator(lines, trainer, length=len(lines)))
    return seconds, tokenizer.get_vocab_size()


LIBRARY_WORK = {"encode tiktoken": encode_with_tiktoken, "encode tokenizers": encode_with_tokenizers,
                "train tokenizers": train_with_tokenizers}


def run_library(python, what, folder, text, threads):
    command = [python, __file__, "--work", what, "--tokenizer", folder, "--text", text, "--threads", threads]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          env={**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"})
    if done.returncode:
        sys.exit(f"{what}: {done.stderr.strip()[-500:]}")
    result = json.loads(done.stdout)
    return result["seconds"], result["tokens"]


# The work of Coeus.

def train_with_coeus(text, folder, vocab_size, threads):
    command = [ROOT / "build/coeus", "tokenizer", text, "--vocab_size", vocab_size, "--output", folder,
               "--threads", threads, "--force"]
    seconds, done = timed(lambda: subprocess.run([str(part) for part in command], capture_output=True, text=True))
    if done.returncode:
        sys.exit(f"coeus tokenizer: {done.stdout[-500:]}{done.stderr[-500:]}")
    return seconds


def encode_with_coeus(folder, text, threads):
    done = subprocess.run([ROOT / "build/bench/bench_tokenizer", f"--benchmark_filter=threads:{threads}/",
                           "--benchmark_min_time=0.1", "--benchmark_format=json"], capture_output=True, text=True,
                          env={**os.environ, "COEUS_BENCH_TEXT": str(text), "COEUS_BENCH_TOKENIZER": str(folder)})
    if done.returncode:
        sys.exit(f"bench_tokenizer: {done.stderr.strip()[-500:]}")
    result = json.loads(done.stdout)["benchmarks"][0]
    return result["real_time"] / 1e3, int(result["tokens"])


def row(name, seconds, text, coeus):
    median = statistics.median(seconds)
    rate = text.stat().st_size / 1e6 / median
    ratio = f"{median / statistics.median(coeus):.2f} x" if seconds is not coeus else ""
    print(f"  {name:<22} {median:8.3f} s {rate:8.1f} MB/s   {ratio}")


def compare(alternations, threads, vocab_size):
    if not DICTIONARY.exists():
        return print(f"skipped: {DICTIONARY} is missing (Debian's package dict-gcide)")
    train_text, encode_text = make_texts()
    folder = WORK / "tokenizer"
    train_with_coeus(train_text, folder, vocab_size, threads)
    python, reason = library_python()
    if reason:
        print(f"only Coeus is measured: {reason}")
    training, encoding = {"Coeus": []}, {"Coeus": []}
    for _ in range(alternations):
        training["Coeus"].append(train_with_coeus(train_text, folder, vocab_size, threads))
        seconds, tokens = encode_with_coeus(folder, encode_text, threads)
        encoding["Coeus"].append(seconds)
        for what in LIBRARY_WORK if python else ():
            action, name = what.split()
            text, table = (train_text, training) if action == "train" else (encode_text, encoding)
            seconds, count = run_library(python, what, folder, text, threads)
            table.setdefault(name, []).append(seconds)
            if action == "encode" and count != tokens:
                sys.exit(f"{name} gives {count} tokens, Coeus {tokens}")
    for title, text, table in (("encoding", encode_text, encoding), ("BPE training", train_text, training)):
        print(f"{title}: {text.stat().st_size / 1e6:.1f} MB, {vocab_size} tokens, {threads} threads, "
              f"medians of {alternations}; the last column: how many times faster Coeus is")
        for name, seconds in table.items():
            row(name, seconds, text, table["Coeus"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, choices=(1, 2))
    parser.add_argument("--vocab_size", type=int, default=2048)
    parser.add_argument("--work", choices=LIBRARY_WORK, help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--text", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        seconds, tokens = LIBRARY_WORK[options.work](options.tokenizer, options.text, options.threads)
        return print(json.dumps({"seconds": seconds, "tokens": tokens}))
    return compare(options.alternations, options.threads, options.vocab_size)


if __name__ == "__main__":
    main()
