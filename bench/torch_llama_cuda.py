#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a Llama with PyTorch on GPUs: bench/gpu.sh compares Coeus with this program.

    bench/torch_llama_cuda.py --dim 4096 --layers 32 --heads 32 --kv_heads 8 --ffn 14336 --vocab 128256 --seq 8192
        --batch 1 --dtype bfloat16 [--accumulation 16] [--tied] [--steps 10] [--compile blocks|whole|no] [--device cpu]
        [--profile] [--ranks N --meeting FILE]

It is written as is usual today: bfloat16 in the forward and backward, scaled_dot_product_attention, torch.compile (of
each block and of head and loss, as torchtitan does; or of the whole model), gradient clipping, fused AdamW. --dtype is
the data type of weights and moments: with float32 it computes under autocast. A step has --accumulation batches. If
memory does not suffice, it first recomputes each block in the backward, and then halves the batch. It prints one JSON
line: tokens/s of the median step after the warm-up, milliseconds of each step, the batch, peak memory, FLOPs per token
as Coeus counts them, and losses. With --profile, torch.profiler observes two more steps after these, and another line
has their milliseconds by class of kernel (kernel_classes.py), and the kernels that take longest; or why there are none.

With --ranks, mpirun or srun starts that many of this program. They divide the weights (fully_shard of each block and of
the model, gradients summed in float32) and meet by FILE, which must not exist yet. The figures are those of rank 0.
"""
import argparse
import functools
import json
import os
import statistics
import time

import torch
from torch import nn
from torch import distributed
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import kernel_classes


PROFILED = 2  # steps


def rotate(x, cos, sin):
    """Rotates the pairs (j, j + width / 2) of x [B, H, S, width] by the angles [S, width / 2]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Norm(nn.RMSNorm):
    def __init__(self, dim):
        super().__init__(dim, eps=1e-5)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Block(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.heads, self.kv_heads, self.width = given.heads, given.kv_heads, given.dim // given.heads
        queries, keys = self.heads * self.width, self.kv_heads * self.width
        linear = functools.partial(nn.Linear, bias=False)
        self.norm1, self.norm2 = Norm(given.dim), Norm(given.dim)
        self.qkv, self.out = linear(given.dim, queries + 2 * keys), linear(queries, given.dim)
        self.gate_up, self.down = linear(given.dim, 2 * given.ffn), linear(given.ffn, given.dim)

    def forward(self, x, cos, sin):
        batch, seq, dim = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, seq, -1, self.width).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), 1)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                               enable_gqa=self.kv_heads != self.heads)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.embedding = nn.Embedding(given.vocab, given.dim)
        self.blocks = nn.ModuleList(Block(given) for _ in range(given.layers))
        self.norm, self.head = Norm(given.dim), nn.Linear(given.dim, given.vocab, bias=False)
        if given.tied:
            self.head.weight = self.embedding.weight
        self.recompute = False

    def initialise(self, given):
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02) if parameter.dim() > 1 else nn.init.ones_(parameter)
        width = given.dim // given.heads
        device = self.embedding.weight.device
        rates = 500000.0 ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
        angles = torch.outer(torch.arange(given.seq, device=device, dtype=torch.float32), rates)
        self.register_buffer("cos", angles.cos(), False)
        self.register_buffer("sin", angles.sin(), False)

    def end(self, x, labels):
        """Returns the loss from the output of the blocks."""
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), labels.flatten())

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.bfloat16)
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = block(x, self.cos, self.sin)
        return self.end(x, labels)


def flops_per_token(model, given):
    """Counts 6 for each weight except those of an untied embedding, and each query with each key."""
    weights = sum(p.numel() for p in model.parameters())
    if not given.tied:
        weights -= model.embedding.weight.numel()
    return 6 * weights + 12 * given.layers * given.dim * given.seq


def measure(model, optimizer, given, batch, steps):
    """Returns the seconds and the mean loss of each step."""
    device = torch.device(given.device)
    tokens = torch.randint(0, given.vocab, (batch, given.seq + 1), device=device)
    seconds, losses = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        loss = 0
        for _ in range(given.accumulation):
            with torch.autocast(device.type, torch.bfloat16, enabled=given.dtype == "float32"):
                part = model(tokens[:, :-1], tokens[:, 1:]) / given.accumulation
            part.backward()
            loss += part.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())  # waits for the GPU
        seconds.append(time.perf_counter() - begin)
    return seconds, losses


def profile(model, optimizer, given, batch):
    """Returns the milliseconds of a step by class, and [kernel, milliseconds] of those that take longest."""
    from torch.profiler import ProfilerActivity
    on_gpu = given.device == "cuda"
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as observed:
        measure(model, optimizer, given, batch, PROFILED)
    ms = {}
    for event in observed.events():
        # the events of a GPU are its kernels and copies; those of a CPU contain each other
        if getattr(event, "is_user_annotation", False) or on_gpu and event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        micros = event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
        ms[event.name] = ms.get(event.name, 0) + micros / 1000 / PROFILED
    kernels = sorted(ms.items(), key=lambda entry: -entry[1])
    return {"classes": kernel_classes.by_class(kernels, kernel_classes.class_of_torch),
            "kernels": [[name[:120], each] for name, each in kernels[:40]]}


def rank_of(given):
    """Returns (rank, rank on its host) as the launcher tells them."""
    def number(*names):
        return int(next((os.environ[name] for name in names if name in os.environ), 0))
    rank = number("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
    local = number("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    return (rank, local) if given.ranks > 1 else (0, 0)


def meet(given):
    """Joins the other ranks; each has the GPU with its number on the host. Returns the rank."""
    rank, local = rank_of(given)
    if given.device == "cuda":
        torch.cuda.set_device(local % torch.cuda.device_count())
    if given.ranks > 1:
        distributed.init_process_group("nccl" if given.device == "cuda" else "gloo", world_size=given.ranks, rank=rank,
                                       init_method=f"file://{given.meeting}")
    return rank


def divide(model, given):
    """Divides the weights over the ranks, as torchtitan does."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    options = {"mesh": init_device_mesh(given.device, (given.ranks,)),
               # the angles of RoPE stay in float32
               "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32,
                                                 cast_forward_inputs=False)}
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("dim", "layers", "heads", "kv_heads", "ffn", "vocab", "seq", "batch"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm_up", type=int, default=3)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--meeting")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--compile", choices=["blocks", "whole", "no"], default="blocks")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()

    rank = meet(given)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with torch.device(given.device):
        torch.set_default_dtype(getattr(torch, given.dtype))
        model = Llama(given)
        torch.set_default_dtype(torch.float32)
        model.initialise(given)
    if given.ranks > 1:
        divide(model, given)
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    if given.compile == "blocks":
        for block in model.blocks:
            block.compile()
        model.end = torch.compile(model.end)
    elif given.compile == "whole":
        model.compile()

    batch = given.batch
    while True:
        try:
            if given.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds, losses = measure(model, optimizer, given, batch, given.steps)
            break
        except torch.OutOfMemoryError:
            if model.recompute and batch == 1:
                raise
            if model.recompute:
                batch //= 2
            model.recompute = True
        optimizer.zero_grad(set_to_none=True)  # gradients that the failed step has left
        torch.cuda.empty_cache()
    tokens = batch * given.seq * given.accumulation
    if rank == 0:
        print(json.dumps({
            "torch": torch.__version__, "tps": tokens / statistics.median(seconds[given.warm_up:]),
            "step_ms": [1000 * each for each in seconds], "batch": batch, "recompute": model.recompute,
            "compile": given.compile,
            "memory_gib": torch.cuda.max_memory_allocated() / 2**30 if given.device == "cuda" else None,
            "parameters": sum(p.numel() for p in model.parameters()), "flops_per_token": flops_per_token(model, given),
            "loss": losses}), flush=True)
    if given.profile:
        try:
            observed = {"profile": profile(model, optimizer, given, batch)}
        except Exception as error:  # such as a driver that forbids it: the measurement counts
            observed = {"profile_error": f"{type(error).__name__}: {error}"}
        if rank == 0:
            print(json.dumps(observed), flush=True)
    if given.ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
