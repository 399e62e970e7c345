#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes logits of Hugging Face folders with transformers.

    PYTHON_WITH_TRANSFORMERS tests/tools/transformers_logits.py [--double] FOLDER TOKENS.safetensors LOGITS.safetensors ...

Any number of such triples may be given. TOKENS has "tokens" [sequences, length], int64; LOGITS gets "logits"
[sequences, length, vocabulary]. Prints a line "BOS EOS" for each folder: the ids with which transformers begins and
ends a generated text. The computation is in float32. With --double it is in float64, also where the library's code
casts to float32 (norms, softmax, RoPE, routers).
"""
import contextlib
import importlib
import sys
import types

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM


class DoubleTorch(types.ModuleType):
    """torch, except that float32 means float64."""

    float = torch.float64
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def double_arithmetic(folder):
    """Within it, the model of a folder is built and run in float64."""
    modeling = AutoModelForCausalLM._model_mapping[type(AutoConfig.from_pretrained(folder))].__module__
    modules = [importlib.import_module(name) for name in (modeling, "transformers.modeling_rope_utils")]
    to_float, default = torch.Tensor.float, torch.get_default_dtype()
    for module in modules:
        module.torch = DoubleTorch("torch")
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)
        torch.Tensor.float = to_float
        for module in modules:
            module.torch = torch


def main(arguments):
    in_double = arguments[:1] == ["--double"]
    for folder, tokens, logits in zip(*[iter(arguments[in_double:])] * 3):
        with double_arithmetic(folder) if in_double else contextlib.nullcontext(), torch.no_grad():
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float64 if in_double else torch.float32, attn_implementation="eager",
                experts_implementation="eager").eval()
            save_file({"logits": model(load_file(tokens)["tokens"]).logits.contiguous()}, logits)
        print(model.generation_config.bos_token_id, model.generation_config.eos_token_id)


main(sys.argv[1:])
