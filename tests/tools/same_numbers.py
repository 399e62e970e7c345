#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether two builds compute the same numbers: same_numbers.py BUILD BUILD

Each build trains the same small models for 20 steps. Losses and gradient norms must have the same digits, the
checkpoints the same checksums (of every array), and the memory plans the same terms. A term that only one of the
builds has is named, but does not count as a difference. No expected values are stored here: the first build gives
them. Two builds of one commit agree in everything; a change of one bit in a kernel is found."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 20
# dense; latent attention and experts in groups; biases, attention in windows, and experts in every layer
LLAMA = ["--model.name=llama3", "--model.flavor=debugmodel", "--model.dim=32", "--model.n_layers=4", "--model.n_heads=8",
         "--model.n_kv_heads=4", "--model.ffn_hidden=48", "--model.vocab_size=320"]
DEEPSEEK = ["--model.name=deepseek_v3", "--model.flavor=debugmodel", "--model.dim=32", "--model.n_layers=4",
            "--model.n_heads=4", "--model.head_dim=12", "--model.v_head_dim=8", "--model.qk_rope_head_dim=4",
            "--model.kv_lora_rank=16", "--model.q_lora_rank=24", "--model.ffn_hidden=48", "--model.vocab_size=320",
            "--model.moe.hidden=16", "--model.moe.num_experts=8", "--model.moe.top_k=2", "--model.moe.num_expert_groups=4",
            "--model.moe.num_limited_groups=2"]
GPT_OSS = ["--model.name=gpt_oss", "--model.flavor=debugmodel", "--model.dim=32", "--model.n_layers=4",
           "--model.n_heads=8", "--model.n_kv_heads=4", "--model.vocab_size=320", "--model.moe.hidden=16",
           "--model.moe.num_experts=8"]
COMMON = ["--training.seq_len=32", f"--training.steps={STEPS}", "--training.threads=1", "--optimizer.lr=1e-2",
          "--lr_scheduler.warmup_steps=2", "--metrics.log_freq=1", "--checkpoint.enable", f"--checkpoint.interval={STEPS}"]
FLOAT64, BFLOAT16 = "--training.dtype=float64", "--training.mixed_precision_param=bfloat16"
FLOAT32 = "--training.mixed_precision_param=float32"


def mesh(**degrees):
    """Options of parallelism: mesh(data_parallel_shard=2)."""
    return [f"--parallelism.{name}_degree={degree}" for name, degree in degrees.items()]


def pipeline(schedule, degree=2):
    return [*mesh(pipeline_parallel=degree), f"--parallelism.pipeline_parallel_schedule={schedule}"]


def converters(*names):
    return [f"--model.converters={','.join(names)}"]


# name, ranks, program in the build folder, options
RUNS = [
    ("float32", 1, "coeus", [*LLAMA, FLOAT32, "--training.local_batch_size=8"]),
    ("bfloat16, fsdp 2, recomputed", 2, "coeus",
     [*LLAMA, BFLOAT16, *mesh(data_parallel_shard=2), "--training.local_batch_size=2",
      "--training.global_batch_size=8", "--activation_checkpoint.mode=full"]),
    ("float64, tp 2 x cp 2", 4, "coeus",
     [*LLAMA, FLOAT64, *mesh(tensor_parallel=2, context_parallel=2), "--training.local_batch_size=8"]),
    ("float32, pp 2, ZBV", 2, "coeus", [*LLAMA, FLOAT32, *pipeline("ZBVZeroBubble"), "--training.local_batch_size=8"]),
    ("float64, replicas 2 x fsdp 2", 4, "coeus",
     [*LLAMA, FLOAT64, *mesh(data_parallel_replicate=2, data_parallel_shard=2), "--training.local_batch_size=2"]),
    ("bfloat16, offloading, emulated GPU", 1, "tests/coeus_emulated",
     [*LLAMA, BFLOAT16, "--device=cuda", "--training.enable_cpu_offload", "--training.local_batch_size=4"]),
    ("bfloat16, pp 2, 1F1B interleaved, Muon", 2, "coeus",
     [*LLAMA, BFLOAT16, *pipeline("Interleaved1F1B"), "--optimizer.name=Muon", "--training.local_batch_size=4"]),
    ("float32, latent attention, experts, fsdp 2 x ep 2", 2, "coeus",
     [*DEEPSEEK, FLOAT32, *mesh(data_parallel_shard=2, expert_parallel=2), "--training.local_batch_size=4"]),
    ("bfloat16, experts, sequence balance, biases, tp 2 x ep 2", 2, "coeus",
     [*GPT_OSS, BFLOAT16, *mesh(tensor_parallel=2, expert_parallel=2), "--model.moe.sequence_balance_coeff=0.01",
      "--training.local_batch_size=4"]),
    ("float64, experts, pp 2 x ep 2, DualPipeV", 4, "coeus",
     [*DEEPSEEK, FLOAT64, *pipeline("DualPipeV"), *mesh(data_parallel_shard=2, expert_parallel=2),
      "--training.local_batch_size=4"]),
    ("float32, two depths of MTP, pp 2 x fsdp 2", 4, "coeus",
     [*LLAMA, FLOAT32, *pipeline("1F1B"), *mesh(data_parallel_shard=2), "--model.num_mtp_layers=2", "--loss.loss_fn=MTPLoss",
      "--training.local_batch_size=4"]),
    ("Float8, fsdp 2, scales ahead", 2, "coeus",
     [*LLAMA, BFLOAT16, *converters("quantize.linear.float8"), "--quantize.linear.float8.emulate",
      "--quantize.linear.float8.enable_fsdp_float8_all_gather",
      "--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", *mesh(data_parallel_shard=2),
      "--training.local_batch_size=4"]),
    ("Float8 of experts too, ep 2", 2, "coeus",
     [*DEEPSEEK, BFLOAT16, *converters("quantize.linear.float8", "quantize.grouped_mm.float8"), "--quantize.grouped_mm.float8.fqns=experts",
      "--quantize.linear.float8.emulate", *mesh(data_parallel_shard=2, expert_parallel=2), "--training.local_batch_size=4"]),
    ("MXFP8 of experts too", 1, "coeus",
     [*DEEPSEEK, BFLOAT16, *converters("quantize.linear.mx", "quantize.grouped_mm.mx"), "--quantize.grouped_mm.mx.fqns=experts",
      "--training.local_batch_size=4"]),
    ("bfloat16, experts, emulated GPU", 1, "tests/coeus_emulated",
     [*DEEPSEEK, BFLOAT16, "--device=cuda", "--training.local_batch_size=2"]),
    ("Float8, emulated GPU", 1, "tests/coeus_emulated",
     [*LLAMA, BFLOAT16, *converters("quantize.linear.float8"), "--device=cuda", "--training.local_batch_size=2"]),
]


def text():
    """Words that follow a rule, so that there is something to learn."""
    words, state = [], 1
    for _ in range(20000):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        words.append(["one", "two", "three", "four", "red", "blue"][state >> 16 & 3 if state >> 20 & 3 else 4 + (state >> 25 & 1)])
    return " ".join(words)


class Build:
    def __init__(self, folder, work):
        self.folder, self.work = Path(folder).resolve(), work
        if not (self.folder / "coeus").exists():
            sys.exit(f"same_numbers.py: {folder} is not a build folder: it has no coeus")
        self.work.mkdir()
        # for Open MPI, or for MPICH
        said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
        self.mpirun = ["mpirun", *(["--oversubscribe", "--bind-to", "none"] if "Open MPI" in said else ["-bind-to", "none"])]

    def coeus(self, ranks, program, arguments):
        command = [str(self.folder / program), *arguments]
        if ranks > 1:
            command = [*self.mpirun, "-n", str(ranks), *command]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_rmaps_base_oversubscribe="1", OMP_WAIT_POLICY="passive")
        done = subprocess.run(command, cwd=self.work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def data(self):
        (self.work / "text.txt").write_text(text())
        self.coeus(1, "coeus", ["tokenizer", "text.txt", "--vocab_size", "320", "--output", "tokenizer"])
        self.coeus(1, "coeus", ["tokenize", "text.txt", "--tokenizer", "tokenizer", "--output", "tokens.h5"])

    def train(self, name, ranks, program, options):
        """Trains; returns the values that the run computed, by name."""
        folder = name.replace(" ", "_").replace(",", "")
        said = self.coeus(ranks, program, ["train", *COMMON, *options, f"--job.dump_folder={folder}",
                                           "--training.dataset_path=tokens.h5", "--training.shuffle=false"])
        found = {}
        for line in (self.work / folder / "metrics.jsonl").read_text().splitlines():
            step = json.loads(line, parse_float=str)
            for key in ("loss", "grad_norm"):
                if key in step:
                    found[f"{key} of step {step['step']}"] = step[key]
        for part in sorted((self.work / folder / "checkpoint").rglob("*.h5")):
            found |= checksums(part)
        plan = re.search(r"memory plan per rank:\n((?: .*\n)+)", said)
        for line in plan[1].splitlines() if plan else []:
            term = re.match(r" +(.*?) {2,}(.*)", line)
            if term:
                found[f"plan: {term[1]}"] = term[2].split(" of ")[0]
        return found


def checksums(file):
    """Returns the checksums of the arrays in a file, read with h5dump."""
    done = subprocess.run(["h5dump", "-g", "/checksum", file], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"h5dump {file}: {done.stderr}")
    found, path = {}, []
    for line in done.stdout.splitlines():
        if opened := re.match(r'( *)(?:GROUP|DATASET) "(.*)" \{', line):
            path = path[:len(opened[1]) // 3] + [opened[2]]
        elif value := re.match(r" *\(.*\): (.*)", line):
            name = f"checksum of {'/'.join(path[1:])}"
            found[name] = found.get(name, "") + value[1]
    return found


def compare(first, second):
    """Returns (differences, names that only one of the two has)."""
    differences = [f"{name}: {first[name]} : {second[name]}" for name in first if name in second and first[name] != second[name]]
    return differences, sorted(first.keys() ^ second.keys())


def main(folders):
    work = Path(tempfile.mkdtemp())
    failed = False
    try:
        builds = [Build(folder, work / str(number)) for number, folder in enumerate(folders)]
        builds[0].data()
        for name in ("tokens.h5",):
            shutil.copy(builds[0].work / name, builds[1].work / name)
        for name, ranks, program, options in RUNS:
            if not all((build.folder / program).exists() for build in builds):
                print(f"left out  {name}: a build has no {program}")
                continue
            results = [build.train(name, ranks, program, options) for build in builds]
            differences, alone = compare(*results)
            kinds = {kind: sum(key.startswith(kind) for key in results[0]) for kind in ("loss", "grad_norm", "checksum", "plan")}
            # a run without losses or checksums would compare nothing
            empty = [kind for kind in ("loss", "grad_norm", "checksum", "plan") if not kinds[kind]]
            good = not differences and not empty and not any(not key.startswith("plan") for key in alone)
            failed |= not good
            print(f"{'the same ' if good else 'DIFFERENT'} {name}: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()))
            for line in [*differences[:10], *(f"only in one: {key}" for key in alone), *(f"no {kind}" for kind in empty)]:
                print(f"          {line}")
    finally:
        shutil.rmtree(work)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
