# SPDX-License-Identifier: Apache-2.0
"""Compares training steps of Llamas on GPUs: Coeus and PyTorch with torch.compile take turns.

    bench/gpu.sh [FOLDER [CASE ...]]      FOLDER: a build folder (default build-cuda) or an unpacked bundle
    bench/gpu.sh FOLDER short             for a command of ten minutes, see below

A case is a model and a sequence length, such as 7B-1024, and a recipe of 8-bit products if it has one (RECIPES), such
as 8B-8192-rowwise. Such a case has no run of PyTorch; the report compares it with the case without a recipe. Cases run
in the order of the table CASES until COEUS_GPU_SECONDS (470) have passed since the start. A run that is under way then
is ended, and the report names the cases that are left. The local batch of a case is the largest that fits on the card
by the memory plan, with as little recomputation as possible (SAVING); PyTorch gets the same. Weights and moments are bfloat16 for 7B and 8B, and float32 for smaller models; all
models compute in bfloat16. A step has at least COEUS_GPU_TOKENS (131072) tokens, by accumulation of gradients; 0: one
local batch per rank. Each figure is the median of the steps after the warm-up, and of two alternations if a case has
two and its steps are not accumulated. The data is random text.

RANKS (1) ranks divide the weights (FSDP; fully_shard in PyTorch). The words of LAUNCH and `-n RANKS` start them; without
it the mpirun of the build or the bundle does. OUT must then be a folder that all nodes see. Figures are per GPU.

`short` ends by itself after COEUS_GPU_SECONDS (570), and runs the most informative first: facts of the machine and the
rates of the kernels that memory bounds (gpu_rows); then 7B-1024 and 8B-8192 with one local batch a step, Coeus and
PyTorch twice in turn; Coeus once with PyTorch's types and order of sums (bfloat16 gradients, sums of attention in any
order); and each case once with 131,072 tokens a step. PyTorch finds in its second turn what it compiled in the first.

The report is written into OUT (default FOLDER) after each run, as gpu-bench/gpu-bench.json and .md, and printed, also
if the script is told to end: card, driver, date, the card's rate in matrix products (gpu_gemm), tokens/s, MFU, the
limit of MFU that a dry run computes for this card (roofline), memory, ratios, and the time by class of kernel for both.
The last turn of a case has the profile, in steps after the measured ones. A ratio is that of the turns that both have
completed. If it differs from 1 by less than the turns of one program do, the report says "level". If python3
(COEUS_TORCH_PYTHON) has no PyTorch with CUDA, the report says so. COEUS_GPU_BENCH=tiny selects small cases for a test of
this script.
"""
import datetime
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import kernel_classes

HERE = Path(__file__).resolve().parent


class Model(NamedTuple):
    dim: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    tied: bool
    dtype: str  # of weights and moments


class Case(NamedTuple):
    model: str
    seq: int
    turns: int = 1  # of Coeus and PyTorch
    profiled: bool = False
    recipe: str = ""  # key of RECIPES

    @property
    def name(self):
        return f"{self.model}-{self.seq}" + (f"-{self.recipe}" if self.recipe else "")


class Way(NamedTuple):
    """How a case trains."""
    tokens: int  # of a step, over all ranks, at least; 0: one local batch per rank
    steps: int
    warm_up: int  # the first step is launched kernel by kernel, the second is recorded
    name: str = ""
    key: str = ""  # in the names of logs
    options: tuple = ()  # of Coeus


TINY = os.environ.get("COEUS_GPU_BENCH") == "tiny"
MODELS = {"1B": Model(2048, 16, 32, 8, 8192, 128256, True, "float32"),
          "3B": Model(3072, 28, 24, 8, 8192, 128256, True, "float32"),
          "7B": Model(4096, 32, 32, 32, 11008, 32000, False, "bfloat16"),
          "8B": Model(4096, 32, 32, 8, 14336, 128256, False, "bfloat16"),
          # 4 of the 32 blocks of 8B, for GPUs with 80 GB
          "2B": Model(4096, 4, 32, 8, 14336, 128256, False, "bfloat16"),
          "tiny": Model(64, 2, 4, 2, 96, 320, True, "float32"),
          "tiny-bf16": Model(64, 2, 4, 4, 96, 320, False, "bfloat16")}
# recipes of linear layers in 8 bits: (converter, its options); the output layer stays in bfloat16
RECIPES = {"": ("", ""),
           "tensorwise": ("quantize.linear.float8", 'filter_fqns = ["output"]'),
           "rowwise": ("quantize.linear.float8", 'recipe_name = "rowwise"\nfilter_fqns = ["output"]'),
           "mxfp8": ("quantize.linear.mx", 'recipe_name = "mxfp8_rceil"')}
# the most informative first
CASES = [Case("7B", 1024, 2, True), Case("8B", 8192, 2, True), Case("8B", 8192, 2, True, "tensorwise"),
         Case("8B", 8192, 2, True, "rowwise"), Case("8B", 8192, 2, True, "mxfp8"), Case("1B", 4096), Case("3B", 4096), Case("8B", 1024),
         Case("2B", 8192, 1, True), Case("2B", 8192, 1, True, "tensorwise"), Case("2B", 8192, 1, True, "rowwise"),
         Case("8B", 32768), Case("1B", 1024), Case("1B", 8192), Case("1B", 32768), Case("3B", 1024), Case("3B", 8192),
         Case("7B", 4096), Case("8B", 4096), Case("3B", 32768), Case("7B", 8192), Case("7B", 32768)]
if TINY:
    CASES = [Case("tiny", 32, 2, True), Case("tiny-bf16", 48)] + [Case("tiny-bf16", 48, recipe=name) for name in RECIPES if name]
# tokens of a local batch: the number to aim at, and the number below which more recomputation is tried instead
MOST_TOKENS, FEWEST_TOKENS = (128, 64) if TINY else (16384, 4096)
STEP_TOKENS = int(os.environ.get("COEUS_GPU_TOKENS", "0" if TINY else "131072"))
# steps without accumulation are short
USUAL = Way(STEP_TOKENS, 5, 2) if TINY or STEP_TOKENS else Way(STEP_TOKENS, 10, 3)
SHORT_TURNS = Way(0, *((3, 1) if TINY else (8, 3)), "one local batch", "turn")
SAME_TYPES = SHORT_TURNS._replace(name="one local batch, PyTorch's types and order of sums", key="same",
                                  options=("--training.gradient_dtype=bfloat16", "--kernels.deterministic=false"))
ACCUMULATED = Way(*((256, 3, 1) if TINY else (131072, 4, 2)), f"{256 if TINY else 131072:,} tokens a step", "accumulated")
PROFILED = 1 if TINY else 4  # steps of Coeus after the measured ones, which --profile observes
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RANKS = int(os.environ.get("RANKS", "1"))
# ways to save memory, the cheapest first: (section of the deck, option, value)
SAVING = {"none": [],
          "operations": [("activation_checkpoint", "mode", '"selective"'),
                         ("activation_checkpoint", "selective_ac_option", '"op"')],
          "blocks": [("activation_checkpoint", "mode", '"full"')],
          "blocks, moments on the host": [("activation_checkpoint", "mode", '"full"'),
                                          ("training", "enable_cpu_offload", "true")]}
VOCABULARY = 300 if TINY else 20000  # size of the data's vocabulary
DECK = """# written by bench/gpu.py
[model]
name = "llama3"
flavor = "debugmodel"
dim = {m.dim}
n_layers = {m.layers}
n_heads = {m.heads}
n_kv_heads = {m.kv_heads}
ffn_hidden = {m.ffn}
vocab_size = {m.vocab}
tied_embeddings = {tied}
converters = [{converters}]
max_seq_len = {seq}

[training]
dataset_path = "{tokens}"
shuffle = false
seq_len = {seq}
local_batch_size = {batch}
global_batch_size = {sequences}
steps = {steps}
dtype = "{m.dtype}"
{training}

[activation_checkpoint]
{activation_checkpoint}

{recipe}

[lr_scheduler]
warmup_steps = 2

[metrics]
log_freq = 1
"""


class Failed(Exception):
    """A run that failed, with the essential line of its output."""


class Ended(BaseException):
    """This script was told to end."""


class Bench:
    def __init__(self, folder, gpu, deadline):
        self.folder = folder
        self.deadline = deadline  # on the clock time.monotonic()
        self.out = Path(os.environ.get("OUT", folder)) / "gpu-bench"
        self.work = self.out / "work"
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                # what PyTorch compiled is found by its next run
                                TORCHINDUCTOR_CACHE_DIR=str(self.work / "inductor"),
                                TRITON_CACHE_DIR=str(self.work / "triton"), TORCHINDUCTOR_FX_GRAPH_CACHE="1",
                                TORCHINDUCTOR_AUTOGRAD_CACHE="1")
        self.flops_per_token, self.peak = {}, None
        self.gpu = gpu
        self.fits, self.tps = {}, {}  # by the name of the case
        self.launch = launcher(folder) + ["-n", str(RANKS)] if RANKS > 1 else []

    def run(self, name, command):
        """Runs a command and returns its standard output; the command and its whole output are written to NAME.log.
        Ends it at the deadline."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Failed("no time was left")
        with open(self.work / "stdout", "w+") as output, open(self.work / "stderr", "w+") as errors:
            process = subprocess.Popen([str(word) for word in command], env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=errors)
            try:
                code = process.wait(left)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end(process)
            output.seek(0)
            errors.seek(0)
            written, complaints = output.read(), errors.read()
        words = " ".join(str(word) for word in command)
        (self.out / f"{name}.log").write_text(f"$ {words}\n{written}{complaints}")
        if code is None:
            raise Failed("no time was left")
        if code != 0:
            lines = (complaints + written).strip().splitlines() or [f"exit code {code}"]
            raise Failed(next((line for line in lines if "error" in line.lower()), lines[-1]))
        return written

    def has_time(self):
        """True if a run could end before the deadline."""
        return self.deadline - time.monotonic() > (0 if TINY else 30)

    def program(self, name):
        """Returns the command that starts a program of the build folder or the bundle."""
        if (self.folder / "run").exists():
            return [self.folder / "run", name]
        return [self.folder / {"coeus": "coeus"}.get(name, f"bench/{name}")]

    def write_data(self):
        """Writes a token file of random words, with a tokenizer trained on them."""
        letters = random.Random(1)
        words = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=4)) for _ in range(VOCABULARY)]
        count = min(USUAL.steps * max(MOST_TOKENS, STEP_TOKENS), 400000) * (4 if TINY else 2)  # repeated if too few
        text, tokenizer = self.work / "text.txt", self.work / "tokenizer"
        text.write_text(" ".join(letters.choices(words, k=count)) + "\n")
        coeus = self.program("coeus")
        self.run("tokenizer", coeus + ["tokenizer", text, f"--vocab_size={VOCABULARY}", "--output", tokenizer,
                                       "--force"])
        self.run("tokenize", coeus + ["tokenize", text, "--tokenizer", tokenizer, "--output",
                                      self.work / "tokens.h5", "--force"])

    def accumulation(self, case, batch, way):
        """Returns the number of local batches of a step on each rank."""
        return max(1, -(-way.tokens // (batch * case.seq * RANKS)))

    def deck(self, case, batch, saving, way, more_steps=0):
        model, path = MODELS[case.model], self.work / "deck.toml"
        options = {section: "\n".join(f"{key} = {value}" for its, key, value in SAVING[saving] if its == section)
                   for section in ("training", "activation_checkpoint")}
        converter, recipe = RECIPES[case.recipe]
        options["converters"], options["recipe"] = (f'"{converter}"', f"[{converter}]\n{recipe}") if converter else ("", "")
        sequences = batch * RANKS * self.accumulation(case, batch, way)
        path.write_text(DECK.format(m=model, tied=str(model.tied).lower(), seq=case.seq, batch=batch, sequences=sequences,
                                    steps=way.steps + more_steps, tokens=self.work / "tokens.h5", **options))
        return path

    def coeus(self, name, deck, *options):
        shutil.rmtree(self.work / "run", ignore_errors=True)
        command = self.program("coeus") + ["train", deck, "--device=cuda", f"--job.dump_folder={self.work / 'run'}"]
        if "--dry_run" in options:
            return self.run(name, command + [f"--ranks={RANKS}", *options])
        return self.run(name, self.launch + command + list(options))

    def roofline(self, case, batch, saving, way):
        """Returns the limit of MFU in percent by a dry run for this card, or None."""
        if not self.gpu or case.recipe:
            return None
        try:
            return mfu_limit(self.coeus(f"{case.name}.roofline", self.deck(case, batch, saving, way), "--dry_run",
                                        f"--gpu={self.gpu}"))
        except Failed:
            return None

    def fit(self, case, memory, way):
        """Returns (sequences per step, key of SAVING) with which a case fits; raises Failed if there are none."""
        smallest = None
        for saving in SAVING:
            batch = max(1, MOST_TOKENS // case.seq)
            while batch:
                try:
                    plan = self.coeus(f"{case.name}.plan", self.deck(case, batch, saving, way), "--dry_run")
                except Failed:
                    if smallest is None:  # otherwise Coeus refuses this way to save memory
                        raise
                    break
                total = re.search(r"^ *total +([\d.]+) (\w+)", plan, re.MULTILINE)
                size = float(total[1]) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(total[2])
                self.flops_per_token[case.model, case.seq] = float(re.search(r"([\d.e+]+) FLOPs per token", plan)[1])
                # enough tokens per step, or any number if blocks are recomputed anyway
                if size <= memory and (batch * case.seq >= FEWEST_TOKENS or saving.startswith("blocks")):
                    return batch, saving
                smallest = size if smallest is None else min(smallest, size)
                batch //= 2
        raise Failed(f"needs at least {smallest / 2**30:.1f} GiB, but {memory / 2**30:.1f} GiB are free")

    def run_coeus(self, name, case, batch, saving, way, profiled):
        begin = time.monotonic()
        deck = self.deck(case, batch, saving, way, PROFILED if profiled else 0)
        output = self.coeus(f"{name}.coeus", deck, *way.options, *(["--profile"] if profiled else []))
        lines = [json.loads(line) for line in (self.work / "run/metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "step_s" in line and way.warm_up < line["step"] <= way.steps]
        median = {key: statistics.median(step[key] for step in steps) for key in ("tps", "tflops", "memory_gib")}
        if steps[-1].get("mfu"):
            self.peak = 100 * steps[-1]["tflops"] / steps[-1]["mfu"]  # TFLOP/s
        start = re.search(r"Start-up ([\d.]+) s", output)
        return dict(median, loss=[line["loss"] for line in lines if "loss" in line],
                    power_w=steps[-1].get("gpu_power_w"), throttle=steps[-1].get("gpu_throttle"),
                    seconds=time.monotonic() - begin, start_s=float(start[1]) if start else None,
                    profile=profile_of(output) if profiled else None)

    def run_torch(self, name, case, batch, way, profiled):
        begin = time.monotonic()
        model = MODELS[case.model]
        sizes = [f"--{key}={getattr(model, key)}" for key in ("dim", "layers", "heads", "kv_heads", "ffn", "vocab")]
        command = [sys.executable, HERE / "torch_llama_cuda.py", *sizes, f"--seq={case.seq}", f"--batch={batch}",
                   f"--dtype={model.dtype}", f"--steps={way.steps}", f"--warm_up={way.warm_up}"]
        command += (["--tied"] if model.tied else []) + (["--device=cpu"] if TINY else [])
        command += ["--profile"] if profiled else []
        command.append(f"--accumulation={self.accumulation(case, batch, way)}")
        if RANKS > 1:
            meeting = self.work / "meeting"  # a file of an earlier run would be taken for this one
            meeting.unlink(missing_ok=True)
            command += [f"--ranks={RANKS}", f"--meeting={meeting}"]
        result = {}
        for line in self.run(f"{name}.torch", self.launch + command).splitlines():
            if line.startswith("{"):
                result.update(json.loads(line))
        ours = self.flops_per_token[case.model, case.seq]
        if abs(result["flops_per_token"] / ours - 1) > 0.01:
            raise Failed(f"computes another model: {result['flops_per_token']:.4g} FLOPs per token, not {ours:.4g}")
        return dict(result, seconds=time.monotonic() - begin)

    def mfu(self, case, tps):
        return None if not self.peak or case.recipe else 100 * tps * self.flops_per_token[case.model, case.seq] / 1e12 / self.peak


def end(process):
    """Ends a process that still runs."""
    if process.poll() is not None:
        return
    process.terminate()  # mpirun and srun end their ranks then
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def profile_of(output):
    """Returns the milliseconds and calls of each kernel, the largest first, as the program prints them."""
    table = output[output.index("Profile of rank 0"):]
    rows = re.findall(r"^  (\w[\w ]*?) +([\d.]+)% +(?:([\d.]+) +)?([\d.]+)(.*)$", table, re.MULTILINE)
    return {"text": table.strip(), "classes": [
        {"name": name, "share": float(share), "calls": float(calls) if calls else None, "ms": float(ms)}
        for name, share, calls, ms, _ in rows]}


def launcher(folder):
    """Returns the words that start ranks, before `-n RANKS`."""
    if os.environ.get("LAUNCH"):
        return os.environ["LAUNCH"].split()
    if (folder / "run").exists():
        return [str(folder / "mpirun"), "--oversubscribe", "--bind-to", "none"]
    done = subprocess.run([HERE.parent / "tools/mpirun_command.sh", folder], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return done.stdout.split()


def mfu_limit(dry_run):
    """Returns the MFU of a step, in percent, that the roofline of a dry run gives at most, or None without one."""
    found = re.search(r"^ *step of .* MFU at most ([\d.]+) %", dry_run, re.MULTILINE)
    return float(found[1]) if found else None


def gpu_of(card):
    """Returns the name that --gpu has for a card: h100 for NVIDIA H100 80GB HBM3, h100-pcie for NVIDIA H100 PCIe."""
    words = re.match(r"(?:NVIDIA )?(?:GeForce )?((?:RTX )?\w+)([ -].*)?$", card)
    if not words or " MIG " in card:
        return ""
    name, rest = words[1].lower().replace(" ", "-"), words[2] or ""
    form = re.match(r"[ -](PCIe|NVL)\b", rest)
    if form and form[1] == "PCIe" and name == "a100":
        form = None  # the same as the others
    small = "-40gb" if name == "a100" and "40GB" in rest else ""
    return name + (f"-{form[1].lower()}" if form else "") + small


def card():
    """Returns (name, driver, free bytes) as the driver reports them. Without a driver all cases count as fitting."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.free", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown", "unknown", float("inf")
    name, driver, free = (word.strip() for word in text.split(","))
    # CUDA itself takes 0.4 GiB
    return name, driver, float(free) * 2**20 - 0.4 * 2**30


def why_no_torch():
    """Returns None if this Python has PyTorch with a GPU, otherwise the reason."""
    test = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 'PyTorch sees no GPU')"
    done = subprocess.run([sys.executable, "-c", "import torch" if TINY else test], capture_output=True, text=True)
    return None if done.returncode == 0 else f"{sys.executable}: {done.stderr.strip().splitlines()[-1]}"


def new_result(case, way):
    return {"case": case.name, "way": way.name, "model": case.model, "seq": case.seq, "weights": MODELS[case.model].dtype,
            "coeus": [], "torch": [], "note": ""}


def prepare(bench, result, case, way, memory, most=None):
    """Adds batch, memory saving and tokens to a result, and returns batch and saving; None if the case does not fit.
    `most`: the way that needs the most memory, if it is another one."""
    plain = case._replace(recipe="").name
    try:
        batch, saving = bench.fits[plain] = bench.fits.get(plain) or bench.fit(case, memory, most or way)
    except Failed as failed:
        result["note"] = str(failed)
        return None
    result.update(batch=batch, saving=saving, tokens=batch * case.seq * RANKS * bench.accumulation(case, batch, way))
    return batch, saving


def take_turns(bench, result, case, way, fit, turns, no_torch, done, profiled):
    """Trains with Coeus and PyTorch in turn, the last time with a profile, and adds the figures to the result."""
    batch, saving = fit
    name = case.name + (f".{way.key}" if way.key else "")
    for turn in range(turns):
        last = profiled and turn + 1 == turns
        for program in ("coeus", "torch"):
            if program == "torch" and (no_torch or case.recipe or way.options):
                continue
            log = name + (f"{turn + 1}" if turn else "")
            try:
                if program == "coeus":
                    run = bench.run_coeus(log, case, batch, saving, way, last)
                else:
                    run = bench.run_torch(log, case, batch, way, last)
            except Failed as failed:
                note(result, f"{program}: {failed}")
                done()
                continue
            result[program].append(run)
            print(f"{result['case']}{', ' + way.name if way.name else ''}: {program} {run['tps']:,.0f} tokens/s,"
                  f" {run['seconds']:.0f} s", flush=True)
            judge(result)
            for kind in ("coeus", "torch"):
                if kind + "_tps" in result:
                    result[kind + "_mfu"] = bench.mfu(case, result[kind + "_tps"])
            done()


def note(result, text):
    if text not in result["note"].split("; "):
        result["note"] += ("; " if result["note"] else "") + text


def spread(runs):
    """Returns how much the speed of turns differs, relative to their mean; None for fewer than two."""
    speeds = [run["tps"] for run in runs]
    return (max(speeds) - min(speeds)) / statistics.mean(speeds) if len(speeds) > 1 else None


def judge(result):
    """Adds the speed of both programs, and their ratio from the turns that both have completed. The ratio is level if it
    differs from 1 by no more than the turns of one program do; unknown (None) with a single turn."""
    both = result["coeus"], result["torch"]
    for name in ("coeus", "torch"):
        if result[name]:
            result[name + "_tps"] = statistics.median(run["tps"] for run in result[name])
    pairs = min(map(len, both))
    if pairs:
        ours, theirs = (statistics.median(run["tps"] for run in runs[:pairs]) for runs in both)
        result["ratio"] = ours / theirs
        result["spread"] = max((spread(runs) for runs in both if len(runs) > 1), default=None)
        result["level"] = None if result["spread"] is None else abs(result["ratio"] - 1) <= result["spread"]


def measure(bench, case, memory, no_torch, report, done):
    """Measures a case as usual."""
    result = new_result(case, USUAL)
    report["cases"].append(result)
    fit = prepare(bench, result, case, USUAL, memory)
    if not fit:
        return
    bench.fits[case.name] = fit
    result["limit"] = bench.roofline(case, *fit, USUAL)
    # long steps vary less, and take the time
    turns = case.turns if TINY or not STEP_TOKENS else 1
    take_turns(bench, result, case, USUAL, fit, turns, no_torch, done, case.profiled)
    plain = case._replace(recipe="").name
    if result["coeus"]:
        bench.tps[case.name] = result["coeus_tps"]
        if case.recipe and plain in bench.tps:
            note(result, f"{result['coeus_tps'] / bench.tps[plain]:.2f} times the speed without a recipe")


def measure_short(bench, memory, no_torch, report, done):
    """Measures what `short` has, the most informative first."""
    cases = CASES[:2]
    plan = [(case, way, turns) for way, turns in ((SHORT_TURNS, 2), (SAME_TYPES, 1), (ACCUMULATED, 1)) for case in cases]
    turns_of = {}
    for case, way, turns in plan:
        if not bench.has_time():
            report["left_out"].append(f"{case.name}, {way.name}")
            continue
        result = new_result(case, way)
        report["cases"].append(result)
        fit = prepare(bench, result, case, way, memory, ACCUMULATED)
        if not fit:
            continue
        if way == SHORT_TURNS:
            turns_of[case.name] = result
            result["limit"] = bench.roofline(case, *fit, way)
        take_turns(bench, result, case, way, fit, turns, no_torch, done, profiled=way == SHORT_TURNS)
        usual = turns_of.get(case.name)
        if way == SAME_TYPES and result["coeus"] and usual and usual["torch"]:
            # PyTorch's turns are the same; its noise and that of Coeus are those of the turns
            result.update(torch=usual["torch"], torch_tps=usual["torch_tps"], torch_mfu=usual.get("torch_mfu"))
            judge(result)
            result["ratio"] = result["coeus_tps"] / result["torch_tps"]
            result["spread"] = usual.get("spread")
            result["level"] = None if result["spread"] is None else abs(result["ratio"] - 1) <= result["spread"]
            done()


def table(results, card):
    def share(value):
        return "" if value is None else f"{value:.1f} %"

    def cells(result, name):
        limit = [share(result.get("limit")) or "no roofline"] if name == "coeus" else []
        if not result[name]:
            return " | ".join(["", "", *limit, ""])
        memory = result[name][-1]["memory_gib"]
        return " | ".join([f"{result[name + '_tps']:,.0f}", share(result[name + "_mfu"]), *limit,
                           "" if memory is None else f"{memory:.1f}"])

    def ratio(result):
        if "ratio" not in result:
            return " | "
        spread_of_turns = "one turn" if result["spread"] is None else f"{100 * result['spread']:.1f} %"
        return f"{result['ratio']:.3f}{', level' if result['level'] else ''} | {spread_of_turns}"
    lines = [f"| case on {card} | weights | batch | tokens per step | memory saving | Coeus, tokens/s | MFU | MFU limit | GiB "
             "| PyTorch, tokens/s | MFU | GiB | ratio | spread of turns | |",
             "|---|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
    for r in results:
        notes = [r["note"]] if r["note"] else []
        if not same_batch(r):
            notes.append(f"PyTorch: batch {r['torch'][-1]['batch']}, blocks recomputed: {r['torch'][-1]['recompute']}")
        lines.append("| {} | {} | {} | {} | {} | {} | {} | {} | {} |".format(
            r["case"] + (f", {r['way']}" if r["way"] else ""), r["weights"], r.get("batch", ""),
            f"{r['tokens']:,}" if "tokens" in r else "", r.get("saving", ""), cells(r, "coeus"), cells(r, "torch"), ratio(r),
            "; ".join(notes)))
    return "\n".join(lines)


def same_batch(result):
    """True unless PyTorch trained with another batch or with more recomputation."""
    return not result["torch"] or (result["torch"][-1]["batch"] == result["batch"] and not result["torch"][-1]["recompute"])


def profiles(result, card):
    """Returns the lines that tell where the time of a case is."""
    observed = {name: next((run["profile"] for run in reversed(result[name]) if run.get("profile")), None)
                for name in ("coeus", "torch")}
    if not any(observed.values()):
        return []

    def by_class(name, kernels, class_of):
        # a program's step is that of the measured run: an observed one is slower
        return kernel_classes.with_outside(kernel_classes.by_class(kernels, class_of),
                                           1000 * result["tokens"] / RANKS / result[name + "_tps"])
    ours = theirs = {}
    if observed["coeus"]:
        kernels = [(kernel["name"], kernel["ms"]) for kernel in observed["coeus"]["classes"]
                   if kernel["name"] not in ("outside of kernels", "waiting for data")]
        ours = by_class("coeus", kernels, kernel_classes.class_of_coeus)
    if observed["torch"] and same_batch(result):
        theirs = kernel_classes.with_outside(observed["torch"]["classes"],
                                             1000 * result["tokens"] / RANKS / result["torch_tps"])
    lines = ["", f"{result['case']}{', ' + result['way'] if result['way'] else ''}:", "", kernel_classes.table(card, ours, theirs)]
    for run in result["torch"]:
        if run.get("profile_error"):
            lines += ["", f"PyTorch has no profile: {run['profile_error']}"]
    if observed["torch"]:
        lines += ["", "PyTorch's kernels that take longest, ms of a step:", ""]
        lines += [f"    {ms:9.2f}  {kernel_classes.class_of_torch(name):20}  {name}" for name, ms in observed["torch"]["kernels"][:16]]
    if observed["coeus"]:
        lines += ["", f"{result['case']}: {observed['coeus']['text']}"]
    return lines


def rows_table(rows, card):
    """Returns what gpu_rows printed, as Markdown."""
    copy = next((row for row in rows if "copy" in row), None)
    lines = ["", f"Kernels that memory bounds, on {card}. " + (
        f"A copy of {copy['bytes'] / 2**30:.2f} GiB (read and written) by {copy['copy']}: {copy['gb_per_s']:,.0f} GB/s" if copy else ""),
             "", "| kernel | model | of | us | GB/s | share of a copy |", "|---|---|---|---:|---:|---:|"]
    lines += [f"| {row['kernel']} | {row['model']} | {row['of']} | {row['us']:.1f} | {row['gb_per_s']:,.0f} | {row['share_of_copy']:.2f} |"
              for row in rows if "kernel" in row]
    return lines


def text_of(report):
    """Returns the report as Markdown."""
    no_torch = f"; no PyTorch: {report['torch']}" if report["torch"] else ""
    ranks = f"{report['ranks']} rank" + ("s" if report["ranks"] > 1 else "")
    card = report["card"]
    lines = [f"{report['date']}, {card}, driver {report['driver']}, `{report['command']}`, {ranks}{no_torch}"]
    lines += [f"{name}: {value}" for name, value in report["facts"].items()]
    if report["gemm"]:
        lines.append("matrix products: " + "; ".join(
            f"{g['product']} {g['type']} {g['rows']} x {g['outputs']} x {g['inputs']} {g['tflops']:.1f} TFLOP/s" for g in report["gemm"]))
    lines += ["", table(report["cases"], card)]
    for result in report["cases"]:
        lines += profiles(result, card)
    if report["rows"]:
        lines += rows_table(report["rows"], card)
    if report["left_out"]:
        lines += ["", f"no time was left for {'; '.join(report['left_out'])}"]
    if report["ended"]:
        lines += ["", f"the script was ended by {report['ended']}"]
    if report["problem"]:
        lines += ["", f"nothing was measured: {report['problem']}"]
    return "\n".join(lines) + "\n"


def write(report, folder):
    for name, text in (("gpu-bench.json", json.dumps(report, indent=1) + "\n"), ("gpu-bench.md", text_of(report))):
        part = folder / (name + ".part")  # if this script is killed, the last report is whole
        part.write_text(text)
        part.replace(folder / name)


def facts(bench):
    """Returns what a reader of the figures asks about the machine."""
    found = {}
    for name, command in (("program", bench.program("coeus") + ["--version"]),
                          ("card, limits, clocks, temperature", ["nvidia-smi", "--format=csv,noheader", "--query-gpu="
                           "name,power.limit,clocks.max.sm,clocks.max.mem,temperature.gpu,memory.used,compute_mode"]),
                          ("PyTorch", [sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda)"])):
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
            found[name] = (done.stdout.strip().splitlines() or ["not known"])[0] if done.returncode == 0 else "not known"
        except (OSError, subprocess.TimeoutExpired):
            found[name] = "not known"
    return found


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def measure_all(bench, report, cases, memory, no_torch):
    """Measures everything and keeps it in the report."""
    def done():
        write(report, bench.out)
    try:
        if not cases:
            report["facts"] = facts(bench)
            done()
        else:
            report["gemm"] = json_lines(bench.run("gemm", bench.program("gpu_gemm") + (["16"] if TINY else [])))
        bench.write_data()
    except Failed as failed:
        report["problem"] = str(failed)
        return
    if not cases:
        try:
            report["rows"] = json_lines(bench.run("rows", bench.program("gpu_rows") + (["--small"] if TINY else [])))
        except Failed as failed:
            report["facts"]["gpu_rows"] = f"failed: {failed}"
        done()
        measure_short(bench, memory, no_torch, report, done)
    for case in cases:
        if bench.has_time():
            measure(bench, case, memory, no_torch, report, done)
        else:
            report["left_out"].append(case.name)
        done()


def main():
    arguments = sys.argv[1:]
    bundle = HERE.parent if (HERE.parent / "run").is_file() else None
    folder = Path(arguments.pop(0) if arguments else bundle or "build-cuda").resolve()
    known = {case.name: case for case in CASES}
    is_short = arguments == ["short"]
    unknown = [name for name in arguments if name not in known and not is_short]
    if unknown or not (folder / "coeus").exists():
        sys.exit(f"there is no {folder}/coeus" if not unknown else "short is given alone" if unknown[0] == "short"
                 else f"there is no case {unknown[0]}; the cases are {', '.join(known)}, or short alone")
    deadline = time.monotonic() + float(os.environ.get("COEUS_GPU_SECONDS", "570" if is_short else "470"))
    name, driver, memory = card()
    no_torch = why_no_torch()
    bench = Bench(folder, gpu_of(name), deadline)
    report = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "card": name,
              "driver": driver, "command": " ".join(["bench/gpu.sh", *sys.argv[1:]]), "ranks": RANKS, "torch": no_torch or "",
              "facts": {}, "gemm": [], "rows": [], "cases": [], "left_out": [], "ended": "", "problem": ""}
    print(f"{report['date']}, card: {name}, driver: {driver}, logs: {bench.out}")
    print(f"PyTorch is left out: {no_torch}" if no_torch else "PyTorch takes turns with Coeus", flush=True)
    write(report, bench.out)

    def end_by(number, _):
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # the report is written now
        raise Ended(signal.Signals(number).name)
    for each in SIGNALS:
        signal.signal(each, end_by)
    try:
        measure_all(bench, report, [] if is_short else [known[case] for case in arguments] or CASES, memory, no_torch)
    except Ended as ended:
        report["ended"] = str(ended)
    shutil.rmtree(bench.work, ignore_errors=True)
    write(report, bench.out)
    print("\n" + text_of(report), end="")
    measured = [result for result in report["cases"] if result["coeus"]]
    sys.exit(0 if measured and not report["problem"] and not report["ended"] else 1)


if __name__ == "__main__":
    main()
