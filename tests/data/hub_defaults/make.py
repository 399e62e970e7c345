# SPDX-License-Identifier: Apache-2.0
"""Writes defaults.json: for each model_type of the golden models, the keys that its class in transformers has, with
their defaults. tests/golden/hub_variants.cpp compares absent keys with them.

    python make.py GOLDEN > defaults.json        # GOLDEN: a folder with models and families; made with transformers 5.24
"""

import json
import pathlib
import sys

from transformers import AutoConfig, PreTrainedConfig

# No part of the model. transformers leaves layers of multi-token prediction out of folders.
LEFT_OUT = set(PreTrainedConfig().to_dict()) - {"tie_word_embeddings"} | {
    "bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range", "model_type", "pretraining_tp",
    "attention_dropout", "residual_dropout", "embd_pdrop", "resid_pdrop", "num_mtp_layers"}


def defaults(model_type):
    config = AutoConfig.for_model(model_type)
    fields = {}
    for base in reversed(type(config).__mro__):
        if not issubclass(base, PreTrainedConfig) or base is PreTrainedConfig:
            continue
        for name in getattr(base, "__annotations__", {}):
            if name in LEFT_OUT or name.startswith("_"):
                continue
            value = vars(base).get(name)
            if value is None or isinstance(value, (bool, int, float, str)):
                fields[name] = value
    fields.setdefault("tie_word_embeddings", config.tie_word_embeddings)
    return fields


def main():
    golden = pathlib.Path(sys.argv[1])
    types = sorted({json.loads(file.read_text())["model_type"]
                    for part in ("models", "families") for file in golden.glob(f"{part}/*/config.json")})
    print(json.dumps({name: defaults(name) for name in types}, indent=1))


main()
