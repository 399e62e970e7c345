#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small checkpoint as torchtitan does: on four ranks, FSDP x tensor parallel, after a step of AdamW.

    PYTHON_WITH_TORCH tests/tools/write_dcp.py FOLDER [float32|bfloat16]

FOLDER/step-7 is the folder of torch.distributed.checkpoint; FOLDER/expected.safetensors has the same tensors as a
whole. The packed folders in tests/data were made with this script.
"""
import logging
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

DIM, KEYS, HIDDEN, VOCAB, STEP = 8, 4, 10, 18, 7


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wo = nn.Linear(DIM, DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.wk, self.wv = nn.Linear(DIM, KEYS, bias=False), nn.Linear(DIM, KEYS, bias=False)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = nn.Linear(DIM, HIDDEN, bias=False), nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM), nn.RMSNorm(DIM)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleDict({"0": Block()})
        self.norm, self.output = nn.RMSNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)


def whole(tensor):
    """full_tensor() is collective: all ranks must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def write(rank, folder, dtype, meeting):
    logging.disable(logging.WARNING)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    model = Model().to(dtype)
    with torch.no_grad():  # few different values, so that the files compress well
        for number, parameter in enumerate(model.parameters()):
            pattern = (torch.arange(parameter.numel()) * 13 + number * 31) % 61 / 64
            parameter.copy_(pattern.view(parameter.shape))
    column, row = ColwiseParallel, RowwiseParallel
    parallelize_module(model, mesh["tp"], {"tok_embeddings": row(input_layouts=Replicate()), "output": column()})
    parallelize_module(model.layers["0"], mesh["tp"], {
        "attention.wq": column(), "attention.wk": column(), "attention.wv": column(), "attention.wo": row(),
        "feed_forward.w1": column(), "feed_forward.w2": row(), "feed_forward.w3": column()})
    fully_shard(model.layers["0"], mesh=mesh["fsdp"])
    fully_shard(model, mesh=mesh["fsdp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0)
    for parameter in model.parameters():
        parameter.grad = 2 * parameter.detach()
    optimizer.step()

    weights = get_model_state_dict(model)
    moments = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    state = {**weights, "optimizer": moments, "lr_scheduler": {"last_epoch": STEP},
             "dataloader": {"dp_rank_0": b"position", "dp_world_size": 2},
             "train_state": {"step": torch.tensor(STEP, dtype=torch.int32), "ntokens_seen": torch.tensor(4480)}}
    dcp.save(state, checkpoint_id=f"{folder}/step-{STEP}")

    expected = {f"model/{name}": whole(tensor) for name, tensor in weights.items()}
    for key, tensor in moments.items():
        for moment in ("exp_avg", "exp_avg_sq"):
            if key.startswith("state.") and key.endswith("." + moment):
                expected[f"optimizer/{moment}/{key[len('state.'):-len(moment) - 1]}"] = whole(tensor)
    if rank == 0:
        save_file({name: tensor.contiguous() for name, tensor in expected.items()}, f"{folder}/expected.safetensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.makedirs(sys.argv[1], exist_ok=True)
    with tempfile.TemporaryDirectory() as rendezvous:
        torch.multiprocessing.spawn(write, nprocs=4, args=(sys.argv[1], getattr(torch, (sys.argv + ["float32"])[2]),
                                                           f"{rendezvous}/meeting"))
