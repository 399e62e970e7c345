#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes logits of Hugging Face folders with transformers.

    PYTHON_WITH_TRANSFORMERS tests/tools/transformers_logits.py [OPTIONS] FOLDER TOKENS.safetensors LOGITS.safetensors ...

Any number of such triples may be given. TOKENS has "tokens" [sequences, length], int64; LOGITS gets "logits"
[sequences, length, vocabulary]. Prints a line "BOS EOS" for each folder: the ids with which transformers begins and
ends a generated text. The computation is in float32. With --double it is in float64, also where the library's code
casts to float32 (norms, softmax, RoPE, routers). With --strict it fails if a tensor of a folder is missing, has no
place in the model, or has another shape. With --continue N, LOGITS also gets "continued" [N]: the tokens that
follow the first half of the first sequence, the most likely one each time, whatever they are.
"""
import argparse
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


def load(folder, given):
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64 if given.double else torch.float32, attn_implementation="eager",
        experts_implementation="eager", output_loading_info=True)
    wrong = {kind: sorted(map(str, names)) for kind, names in report.items() if names}
    if given.strict and wrong:
        sys.exit(f"{folder}: {wrong}")
    return model.eval()


def continued(model, tokens, number):
    """Returns the most likely next tokens of one sequence, with the library's cache of keys and values."""
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    text = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=number, do_sample=False)
    return text[0, tokens.shape[1]:].contiguous()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--continue", type=int, default=0, dest="more")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    for folder, tokens, logits in zip(*[iter(given.files)] * 3):
        with double_arithmetic(folder) if given.double else contextlib.nullcontext(), torch.no_grad():
            model, texts = load(folder, given), load_file(tokens)["tokens"]
            begin_and_end = model.generation_config.bos_token_id, model.generation_config.eos_token_id
            results = {"logits": model(texts).logits.contiguous()}
            if given.more > 0:
                results["continued"] = continued(model, texts[:1, :texts.shape[1] // 2], given.more)
            save_file(results, logits)
        print(*begin_and_end)


if __name__ == "__main__":
    main()
