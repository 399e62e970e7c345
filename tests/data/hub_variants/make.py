# SPDX-License-Identifier: Apache-2.0
"""Writes variants.json: forms of config.json of open decoders, and the losses that transformers computes for them in
float64. tests/golden/hub_losses.cpp compares them with those of Coeus.

    python make.py GOLDEN > variants.json        # GOLDEN: a folder with models and families; made with transformers 5.24

Each variant is the config.json of a golden model with some keys changed, and some left out. Its weights and tokens
follow from names and numbers (numbers), so that the test has the same ones.
"""

import json
import pathlib
import sys
import tempfile
import zlib

import numpy
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/tools"))
from transformers_logits import double_arithmetic  # noqa: E402

LENGTH = 24
LEFT_OUT = object()
IRRELEVANT = ["transformers_version", "dtype", "use_cache", "initializer_range", "bos_token_id", "eos_token_id",
              "attention_dropout", "pretraining_tp", "router_jitter_noise", "embd_pdrop", "resid_pdrop",
              "residual_dropout"]
# Keys whose absence leaves a small model possible.
DEFAULTS = ["attention_bias", "attention_out_bias", "attn_logit_softcapping", "clip_qkv", "decoder_sparse_step",
            "final_logit_softcapping", "hidden_act", "hidden_activation", "layer_norm_eps", "logit_scale",
            "max_window_layers", "mlp_bias", "mlp_only_layers", "moe_norm_min", "n_group", "norm_topk_prob",
            "output_router_logits", "qkv_bias", "query_pre_attn_scalar", "rms_norm_eps", "rope_interleave",
            "router_aux_loss_coef", "routed_scaling_factor", "tie_word_embeddings", "topk_group", "use_bias",
            "use_bidirectional_attention", "use_qk_norm", "use_sliding_window"]

YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
OF_LLAMA3 = {"rope_type": "llama3", "rope_theta": 20000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 16}
# As transformers wrote it before version 5.
OLDER_YARN = {"rope_parameters": LEFT_OUT, "rope_theta": 20000.0, "rope_scaling": {"type": "yarn", **YARN}}
OLDER_PLAIN = {"rope_parameters": LEFT_OUT, "rope_theta": 20000, "rope_scaling": None}
LINEAR = {"rope_parameters": {"rope_type": "linear", "rope_theta": 20000.0, "factor": 2.0}}
BIASES = {"attention_bias": True}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
WINDOW, FULL = "sliding_attention", "full_attention"
EQUAL_HEADS = {"num_key_value_heads": None}

FAMILIES = {
    "families/mixtral": {
        "tied, older YaRN": TIED | OLDER_YARN,
        "a window": {"sliding_window": 5},
        "three of four experts": {"num_local_experts": 4, "num_experts_per_tok": 3} | LINEAR},
    "families/glm4_moe": {
        "no norms of heads, tied": {"use_qk_norm": False} | TIED,
        "no biases, all experts, groups": {"attention_bias": False, "first_k_dense_replace": 0, "n_group": 2},
        "older YaRN, half of a head": OLDER_YARN | {"partial_rotary_factor": 0.5},
        "not normalised": {"norm_topk_prob": False, "n_shared_experts": 2, "routed_scaling_factor": 1.0}},
    "families/glm4_moe_lite": {
        "no latents of queries": {"q_lora_rank": None} | TIED,
        "the last layer dense": {"mlp_layer_types": ["sparse", "dense"]},
        "older YaRN with factors": OLDER_YARN | {"rope_scaling": {
            "type": "yarn", "mscale": 0.7, "mscale_all_dim": 0.9, **YARN}}},
    "families/dots1": {
        "a window in the last layer": {"sliding_window": 5, "layer_types": [FULL, WINDOW]},
        "a window from a layer on": {"sliding_window": 5, "max_window_layers": 1, "layer_types": LEFT_OUT},
        "biases, tied, older RoPE": BIASES | TIED | OLDER_PLAIN,
        "all dense but one": {"first_k_dense_replace": 0, "n_group": 2, "topk_group": 1} | LINEAR},
    "families/ernie4_5": {
        "a head of its own": UNTIED,
        "no width of heads": {"head_dim": LEFT_OUT} | OLDER_PLAIN,
        "as in Llama 3.1": {"rope_parameters": OF_LLAMA3}},
    "families/ernie4_5_moe": {
        "experts in all layers": {"moe_layer_start_index": 0} | UNTIED,
        "every second layer": {"moe_layer_start_index": 0, "moe_layer_interval": 2, "moe_k": 3},
        "until a layer": {"moe_layer_start_index": 0, "moe_layer_end_index": 0, "moe_num_shared_experts": 1},
        "older RoPE": OLDER_PLAIN},
    "families/seed_oss": {
        "all biases, tied": {"attention_out_bias": True} | TIED,
        "a bias of the output alone": {"attention_bias": False, "attention_out_bias": True},
        "older YaRN": OLDER_YARN},
    "families/smollm3": {
        "every second layer without RoPE": {"no_rope_layers": LEFT_OUT, "no_rope_layer_interval": 2},
        "an irregular list, a head": {"no_rope_layers": [0, 0, 1, 0]} | UNTIED,
        "windows": {"use_sliding_window": True, "sliding_window": 5, "layer_types": [WINDOW, FULL, FULL, WINDOW]},
        "biases, older YaRN": BIASES | OLDER_YARN},
    "families/cwm": {
        "no list of layers": {"layer_types": LEFT_OUT},
        "an irregular list, tied": {"layer_types": [WINDOW, FULL, FULL, WINDOW]} | TIED,
        "older RoPE": {"rope_parameters": LEFT_OUT, "rope_theta": 1000000.0, "rope_scaling": {
            "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16}}},
    "families/phi3": {
        "no window, tied": {"sliding_window": None} | TIED,
        "older, half of a head": OLDER_PLAIN | {"partial_rotary_factor": 0.5},
        "a whole head": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}},
    "families/phi3_longrope": {
        "rows beyond the first length": {"original_max_position_embeddings": 16, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.2],
            "long_factor": [2.0, 3.0, 4.0], "original_max_position_embeddings": 16, "partial_rotary_factor": 1.0}},
        "older RoPE": {"rope_parameters": LEFT_OUT, "rope_theta": 20000.0, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0, 1.3, 1.5], "long_factor": [2.0, 3.0, 4.0]}},
        "three quarters of a head, tied": TIED | {"hidden_size": 32, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.2],
            "long_factor": [2.0, 3.0, 4.0], "original_max_position_embeddings": 32, "partial_rotary_factor": 0.75}}},
    "families/ministral3": {
        "a stronger temperature, tied": TIED | {"rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e6, "llama_4_scaling_beta": 0.5, "beta_fast": 32.0, "beta_slow": 1.0,
            "mscale": 1.0, "mscale_all_dim": 1.0, **YARN}},
        "a window": {"sliding_window": 5},
        "no scaling": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "llama_4_scaling_beta": 0.2,
                                           "original_max_position_embeddings": 8}}},
    "families/gemma3": {
        "no list of layers, a head": {"layer_types": LEFT_OUT} | UNTIED,
        "the period of older files": {"layer_types": LEFT_OUT, "sliding_window_pattern": 2},
        "older RoPE": {"rope_parameters": LEFT_OUT, "rope_theta": 1e6, "rope_local_base_freq": 5000.0,
                       "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "biases, other scores": BIASES | {"query_pre_attn_scalar": 24}},
    "families/granite": {
        "biases, a head of its own": BIASES | UNTIED,
        "no factors": {name: LEFT_OUT for name in ("attention_multiplier", "embedding_multiplier", "logits_scaling",
                                                   "residual_multiplier")},
        "older YaRN": OLDER_YARN},
    "families/granitemoe_shared": {
        "no shared expert, a head": {"architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe",
                                     "shared_intermediate_size": LEFT_OUT} | UNTIED,
        "three experts, biases": {"num_experts_per_tok": 3} | BIASES,
        "older RoPE, no factors": OLDER_PLAIN | {"logits_scaling": LEFT_OUT, "residual_multiplier": LEFT_OUT}},
    "families/cohere2": {
        "no list of layers": {"layer_types": LEFT_OUT},
        "biases, an irregular list": BIASES | {"layer_types": [FULL, WINDOW, FULL, FULL]},
        "older RoPE": OLDER_PLAIN | {"logit_scale": 1.5}},
    "families/qwen2_moe": {
        "normalised, tied": {"norm_topk_prob": True} | TIED,
        "a dense layer, no biases": {"mlp_only_layers": [0], "qkv_bias": False},
        "every second layer": {"decoder_sparse_step": 2} | OLDER_YARN,
        "windows": {"use_sliding_window": True, "sliding_window": 5, "layer_types": [FULL, WINDOW]}},
    "families/olmo2": {
        "biases, tied": BIASES | TIED,
        "older YaRN": OLDER_YARN,
        "as many heads of keys": EQUAL_HEADS | {"rope_parameters": OF_LLAMA3}},
    "families/olmo3": {
        "no list of layers": {"layer_types": LEFT_OUT} | TIED,
        "an irregular list, biases": {"layer_types": [FULL, FULL, WINDOW, FULL]} | BIASES,
        "older RoPE": {"rope_parameters": LEFT_OUT, "rope_theta": 500000.0, "rope_scaling": {
            "rope_type": "yarn", "attention_factor": 1.2, "beta_fast": 32.0, "beta_slow": 1.0, **YARN}}},
    "families/olmoe": {
        "normalised, tied": {"norm_topk_prob": True} | TIED,
        "biases": BIASES | {"num_experts_per_tok": 3},
        "older YaRN": OLDER_YARN},
    "families/exaone4": {
        "no windows": {"sliding_window": None, "layer_types": [FULL] * 4},
        "a window that no layer has": {"sliding_window": 5, "layer_types": [FULL] * 4},
        "no window named, in no layer": {"sliding_window": LEFT_OUT, "layer_types": [FULL] * 4},
        "a pattern without windows": {"sliding_window": 5, "sliding_window_pattern": 1, "layer_types": LEFT_OUT},
        "no list of layers, tied": {"layer_types": LEFT_OUT} | TIED,
        "an irregular list": {"layer_types": [FULL, WINDOW, WINDOW, FULL]} | LINEAR},
    "families/glm4": {
        "no biases, tied": {"attention_bias": False} | TIED,
        "older RoPE, a quarter of a head": OLDER_PLAIN | {"partial_rotary_factor": 0.25},
        "no width of heads": {"head_dim": LEFT_OUT, "hidden_size": 32}},
    "models/deepseek_v3_lite": {
        "Kimi K2's router": {"n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.827},
        "latents of queries, tied": {"q_lora_rank": 12} | TIED,
        "older YaRN": OLDER_YARN | {"rope_scaling": {"type": "yarn", "mscale": 1.0, "mscale_all_dim": 1.0, **YARN}}},
}


def numbers(name, count):
    """Returns integers below 2^20 for a name."""
    x = numpy.arange(count, dtype=numpy.uint32) + numpy.uint32(zlib.crc32(name.encode()))
    for shift, factor in ((16, 0x7feb352d), (15, 0x846ca68b)):
        x = (x ^ (x >> numpy.uint32(shift))) * numpy.uint32(factor)
    return (x ^ (x >> numpy.uint32(16))) >> numpy.uint32(12)


def weights(name, shape):
    """Returns numbers between -0.25 and 0.25, around 1 if the tensor has one axis, exact in float32."""
    values = (numbers(name, int(numpy.prod(shape))).astype(numpy.float64) - 2**19) / 2**21
    return (values + (len(shape) == 1)).astype(numpy.float32).reshape(shape)


def loss(config):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(config))
        with double_arithmetic(folder), torch.no_grad():
            AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder / "new")
            tensors = load_file(folder / "new/model.safetensors")
            save_file({key: weights(key, tensor.shape) for key, tensor in tensors.items()},
                      folder / "model.safetensors", metadata={"format": "pt"})
            model, report = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager",
                output_loading_info=True)
            assert not any(report.values()), report
            tokens = torch.tensor(numbers("tokens", LENGTH + 1).astype(numpy.int64) % config["vocab_size"])
            logits = model.eval()(tokens[None, :-1]).logits[0]
            assert logits.dtype == torch.float64
            return torch.nn.functional.cross_entropy(logits, tokens[1:]).item()


def main():
    golden, configs, variants = pathlib.Path(sys.argv[1]), {}, []
    for case, of_family in FAMILIES.items():
        config = json.loads((golden / case / "config.json").read_text())
        configs[case] = {key: value for key, value in config.items() if key not in IRRELEVANT}
        of_groups = ("n_group", "topk_group") if config.get("n_group", 1) > 1 else ()  # by default too many groups
        defaults = {key: LEFT_OUT for key in DEFAULTS if key in config and key not in of_groups}
        if "rope_theta" in config["rope_parameters"]:
            defaults["rope_parameters"] = LEFT_OUT
        for name, changes in {"defaults": defaults, **of_family}.items():
            changed = configs[case] | changes
            print(case, name, file=sys.stderr)
            variants.append({
                "config": case, "name": name,
                "changes": {key: value for key, value in changes.items() if value is not LEFT_OUT},
                "left_out": [key for key, value in changes.items() if value is LEFT_OUT],
                "loss": loss({key: value for key, value in changed.items() if value is not LEFT_OUT})})
    lines = [f' "configs": {json.dumps(configs)}', ' "variants": [\n  ' + ",\n  ".join(map(json.dumps, variants)) + "\n ]"]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
