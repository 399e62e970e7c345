#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of a model with experts in PyTorch, for bench/compare_moe.py. Prints one line of JSON.

    bench/torch_moe.py --shape debug --form loop|grouped --dtype f32|bf16 [--compile] [--optimizer] [--threads 2]

The forms of the experts: `loop`, one product for each expert; `grouped`, torch.nn.functional.grouped_mm on rows that
are sorted by expert. The router is a softmax over all experts; the weights of a token's experts are divided by their
sum. Weights are float32; with --dtype bf16, products are computed in bfloat16 (autocast)."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

# dim, layers, heads, kv heads, width of a head, experts, experts of a token, width of an expert, vocabulary
SHAPES = {"debug": (256, 8, 16, 8, 128, 64, 8, 768, 2048), "slice": (2048, 1, 16, 16, 128, 64, 6, 1408, 2048)}


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1).to(x.dtype)


class Experts(nn.Module):
    def __init__(self, dim, experts, top_k, hidden, form):
        super().__init__()
        self.top_k, self.form = top_k, form
        self.gate = nn.Linear(dim, experts, bias=False)
        def weights(rows, columns):
            return nn.Parameter(torch.randn(experts, rows, columns) * 0.02)
        self.w1, self.w3, self.w2 = weights(dim, hidden), weights(dim, hidden), weights(hidden, dim)

    def forward(self, x):
        rows = x.flatten(0, -2)
        scores = self.gate(rows).float().softmax(-1)
        weight, chosen = scores.topk(self.top_k, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        token = order // self.top_k
        counts = torch.bincount(chosen.flatten(), minlength=self.w1.shape[0])
        own = rows[token]
        if self.form == "loop":
            parts = []
            for expert, part in enumerate(own.split(counts.tolist())):
                inner = F.silu(part @ self.w1[expert]) * (part @ self.w3[expert])
                parts.append(inner @ self.w2[expert])
            out = torch.cat(parts)
        else:
            kind = torch.bfloat16 if torch.is_autocast_enabled("cpu") else own.dtype
            ends = counts.cumsum(0).to(torch.int32)
            def product(a, b):
                return F.grouped_mm(a.to(kind), b.to(kind), offs=ends)
            out = product(F.silu(product(own, self.w1)) * product(own, self.w3), self.w2)
        out = out * weight.flatten()[order, None].to(out.dtype)
        return torch.zeros_like(rows, dtype=out.dtype).index_add(0, token, out).view(x.shape)


class Block(nn.Module):
    def __init__(self, dim, heads, kv, head, experts, top_k, hidden, form):
        super().__init__()
        self.heads, self.kv, self.head = heads, kv, head
        self.wq = nn.Linear(dim, heads * head, bias=False)
        self.wk = nn.Linear(dim, kv * head, bias=False)
        self.wv = nn.Linear(dim, kv * head, bias=False)
        self.wo = nn.Linear(heads * head, dim, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-6) for width in (dim, dim, head, head))
        self.experts = Experts(dim, experts, top_k, hidden, form)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        h = self.norms[0](x)
        def split(y, heads):
            return y.view(batch, length, heads, self.head)
        q = rotate(self.norms[2](split(self.wq(h), self.heads)).transpose(1, 2), cos, sin)
        k = rotate(self.norms[3](split(self.wk(h), self.kv)).transpose(1, 2), cos, sin)
        v = split(self.wv(h), self.kv).transpose(1, 2)
        a = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True,
                                           enable_gqa=self.heads != self.kv)
        x = x + self.wo(a.transpose(1, 2).flatten(2))
        return x + self.experts(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, dim, layers, heads, kv, head, experts, top_k, hidden, vocab, length, form):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, kv, head, experts, top_k, hidden, form) for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(dim, eps=1e-6), nn.Linear(dim, vocab, bias=False)
        angles = torch.outer(torch.arange(length).float(), 1e6 ** (-torch.arange(0, head, 2).float() / head))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks: x = block(x, self.cos, self.sin)
        return self.output(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--form", choices=["loop", "grouped"], required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--optimizer", action="store_true", help="a step has AdamW and clipping")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    vocab = SHAPES[given.shape][-1]
    model = Model(*SHAPES[given.shape], given.length, given.form)
    call = torch.compile(model) if given.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4, fused=True) if given.optimizer else None
    tokens = torch.randint(0, vocab, (given.batch, given.length + 1))
    times = []
    for _ in range(given.steps):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=given.dtype == "bf16"):
            logits = call(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if optimizer:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.zero_grad(set_to_none=False)
        times.append(time.perf_counter() - begin)
    print(json.dumps({"torch": torch.__version__, "seconds": statistics.median(times[2:]), "loss": loss.item()}))


if __name__ == "__main__":
    main()
