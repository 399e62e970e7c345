#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the speed of two builds: compare_builds.py BUILD BUILD [TURNS]

Each turn starts both builds with the same work: training steps of a small Llama on one thread (float32, bfloat16), a
start with one step, and a dry run of a model with 405 billion parameters on 16,384 ranks. The script prints medians
over the turns (9 by default) of the elapsed time, the CPU time in user mode, and the tokens per second, each with the
ratio of the second build to the first. Other work on the machine disturbs the user time least."""
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = ["train", "--model.name=llama3", "--model.flavor=debugmodel", "--training.dataset_path=tokens.h5", "--training.shuffle=false", "--training.seq_len=256",
         "--training.local_batch_size=2", "--training.threads=1", "--metrics.log_freq=1"]
WORK = {
    "float32": [*TRAIN, "--training.steps=14", "--training.mixed_precision_param=float32"],
    "bfloat16": [*TRAIN, "--training.steps=14", "--training.mixed_precision_param=bfloat16"],
    "start": [*TRAIN, "--training.steps=1", "--training.mixed_precision_param=float32"],
    "dry run": ["train", "--model.name=llama3", "--model.flavor=405B", "--dry_run", "--ranks", "16384",
                "--parallelism.tensor_parallel_degree=8", "--parallelism.pipeline_parallel_degree=16",
                "--parallelism.pipeline_parallel_schedule=1F1B", "--training.seq_len=8192", "--training.local_batch_size=16"],
}


def coeus(build, arguments, folder):
    """Runs coeus and returns (seconds, user seconds, output)."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run([build / "coeus", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    if done.returncode:
        sys.exit(f"{build}/coeus {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return end - begin, after.ru_utime - before.ru_utime, done.stdout + done.stderr


def rate(output):
    """Returns the median tokens per second, without the first two steps if there are more."""
    rates = [float(number.replace(",", "")) for number in re.findall(r" tps: ([\d,]+)  tflops", output)]
    return statistics.median(rates[2:] or rates) if rates else None


def main(builds, turns):
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "text.txt").write_text("".join(f"{word} " for word in ["one", "two", "three", "four"] * 8000))
        coeus(builds[0], ["tokenizer", "text.txt", "--vocab_size", "300", "--output", "tokenizer"], folder)
        coeus(builds[0], ["tokenize", "text.txt", "--tokenizer", "tokenizer", "--output", "tokens.h5"], folder)
        for name, arguments in WORK.items():
            found = [[], []]
            for _ in range(turns):
                for build, values in zip(builds, found):
                    shutil.rmtree(folder / "run", ignore_errors=True)
                    seconds, user, output = coeus(build, [*arguments, "--job.dump_folder=run"], folder)
                    values.append({"s": seconds, "s (user)": user, "tokens/s": rate(output)})
            for unit in found[0][0]:
                if found[0][0][unit] is not None:
                    first, second = (statistics.median(turn[unit] for turn in values) for values in found)
                    print(f"{name:10} {unit:10} {first:10.4g} {second:10.4g}  ratio {second / first:.3f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main([Path(argument).resolve() for argument in sys.argv[1:3]], int(sys.argv[3]) if len(sys.argv) == 4 else 9)
