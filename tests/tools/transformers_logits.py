#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes logits of Hugging Face folders with transformers, in float32.

    PYTHON_WITH_TRANSFORMERS tests/tools/transformers_logits.py FOLDER TOKENS.safetensors LOGITS.safetensors ...

Any number of such triples may be given. TOKENS has "tokens" [sequences, length], int64; LOGITS gets "logits"
[sequences, length, vocabulary]. Prints a line "BOS EOS" for each folder: the ids with which transformers begins and
ends a generated text.
"""
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

for folder, tokens, logits in zip(*[iter(sys.argv[1:])] * 3):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        save_file({"logits": model(load_file(tokens)["tokens"]).logits.contiguous()}, logits)
    print(model.generation_config.bos_token_id, model.generation_config.eos_token_id)
