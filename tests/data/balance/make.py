#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the cases of this folder with transformers (5.24) and torch, in float64: the loss that balances experts.

    python3 make.py FOLDER

Each case is a small Qwen3MoeForCausalLM with random weights (config.json, model.safetensors), and tokens [B, S + 1]
with what transformers computes of them (expected.json):

- one: a layer and a sequence. The loss and its gradient are those of the model's own forward pass.
- two: two layers and two sequences. load_balancing_loss_func is called for each layer and sequence, and the mean of
  its results replaces transformers' one call for all of them.
"""

import contextlib
import json
import sys
import types
from pathlib import Path

import torch
import transformers
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, modeling_rope_utils
from transformers.models.qwen3_moe import modeling_qwen3_moe as modeling

COEFFICIENT = 0.02
CASES = {"one": {"layers": 1, "sequences": 1}, "two": {"layers": 2, "sequences": 2}}


class DoubleTorch(types.ModuleType):
    """torch, except that float32 means float64."""

    float = torch.float64
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def double_arithmetic():
    """The casts of the modeling code to float32 become casts to float64."""
    to_float = torch.Tensor.float
    modeling.torch = modeling_rope_utils.torch = DoubleTorch("torch")
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.Tensor.float = to_float
        modeling.torch = modeling_rope_utils.torch = torch


def smallest_gap(router_logits, top_k):
    """The smallest difference of a chosen and a rejected score."""
    scores = torch.softmax(torch.cat(router_logits), dim=-1).sort(descending=True).values
    return (scores[:, top_k - 1] - scores[:, top_k]).min().item()


def make_case(name, layers, sequences, folder):
    torch.manual_seed(7)
    config = Qwen3MoeConfig(
        vocab_size=24, hidden_size=16, num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=1,
        head_dim=8, intermediate_size=24, moe_intermediate_size=6, num_experts=5, num_experts_per_tok=2,
        norm_topk_prob=True, max_position_embeddings=64, router_aux_loss_coef=COEFFICIENT, tie_word_embeddings=False,
        attn_implementation="eager", experts_implementation="eager")
    length, experts, top_k = 11, config.num_experts, config.num_experts_per_tok
    with double_arithmetic():
        model = Qwen3MoeForCausalLM(config).double()
        for parameter in model.parameters():  # exact in float32, in which they are stored
            parameter.data = (0.3 * torch.randn_like(parameter) + (parameter.dim() == 1)).to(torch.float32).double()
        tokens = torch.randint(0, config.vocab_size, (sequences, length + 1))
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        if name == "one":
            output = model(input_ids=inputs, labels=labels, shift_labels=labels, output_router_logits=True)
            aux_loss, loss = output.aux_loss, output.loss
            cross_entropy = loss - COEFFICIENT * aux_loss
        else:
            output = model(input_ids=inputs, output_router_logits=True)
            cross_entropy = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), labels.flatten())
            parts = [modeling.load_balancing_loss_func((of_sequence,), experts, top_k)
                     for of_layer in output.router_logits for of_sequence in of_layer.split(length)]
            aux_loss = sum(parts) / len(parts)
            loss = cross_entropy + COEFFICIENT * aux_loss
        assert smallest_gap(output.router_logits, top_k) > 1e-3
        assert loss.dtype == aux_loss.dtype == torch.float64
        loss.backward()
        norm = torch.sqrt(sum((parameter.grad**2).sum() for parameter in model.parameters()))
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    values = {"transformers": transformers.__version__, "cross_entropy": cross_entropy.item(),
              "aux_loss": aux_loss.item(), "loss": loss.item(), "grad_norm": norm.item(), "tokens": tokens.tolist()}
    (out / "expected.json").write_text(json.dumps(values) + "\n")
    model.float().save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case, sizes in CASES.items():
        make_case(case, folder=Path(sys.argv[1]), **sizes)
