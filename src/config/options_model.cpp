// SPDX-License-Identifier: Apache-2.0
// Options of the model and of its optimizer.
#include "coeus/deck_names/optimizers.hpp"
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* as_flavor = "that of `model.flavor`";

// Overrides the field with the same name in the model's configuration (models/config_fields.hpp).
Option override_of(Field field, const char* meaning, const Rule& rule) {
    return works(field, to_run, meaning).obeys(rule).defaults_to(as_flavor);
}

}  // namespace

std::vector<Option> model_options() {
    return {
        works(COEUS_FIELD(model.name), to_run, "Model family"),  // its choices come with DeckRules
        works(COEUS_FIELD(model.flavor), to_run,
              "Size of the model within its family, such as `8B`. `hf`: the shapes are read from "
              "`config.json` in `model.hf_assets_path`"),
        works(COEUS_FIELD(model.hf_assets_path), to_nothing,
              "Folder with the tokenizer. If they are used, `config.json` and the weights are there too"),
        works(COEUS_FIELD(model.tokenizer_path), to_nothing,
              "The tokenizer, if it is not in `model.hf_assets_path` (an older option of torchtitan)"),
        works(
            COEUS_FIELD(model.norm_type), to_run,
            "Kind of normalisation. `fused_rmsnorm` is the same as `rmsnorm`. `np_layernorm` has no weights")
            .one_of({"rmsnorm", "fused_rmsnorm", "layernorm", "np_layernorm"})
            .defaults_to(as_flavor),
        works(COEUS_FIELD(model.initial_values), to_run,
              "Distributions of the initial weights: torchtitan's of 2026, or those of its decks in TOML "
              "(2025). They differ for `qwen3` and `gpt_oss`")
            .one_of({"2026", "2025"}),
        works(
            COEUS_FIELD(model.converters), to_run,
            "Parts of the model that are computed in 8 bits (doc/float8.md). Each has a section of options. "
            "`float8` and `mx` are short for `quantize.linear.float8` and `quantize.linear.mx`")
            .one_of({"quantize.linear.float8", "quantize.grouped_mm.float8", "quantize.linear.mx",
                     "quantize.grouped_mm.mx", "float8", "mx"}),
        works(COEUS_FIELD(model.print_after_conversion), to_nothing,
              "Print how each group of equal linear layers is computed, and why some stay in the compute "
              "type. A dry run always does"),
        works(COEUS_FIELD(model.frozen), to_run,
              "Parameters that are not trained: regular expressions, each searched in the names of all "
              "parameters (doc/optimizers.md). They have no gradients and no moments"),
        override_of(COEUS_FIELD(model.dim), "Width of the residual stream", at_least_1),
        override_of(COEUS_FIELD(model.n_layers), "Number of blocks", at_least_1),
        override_of(COEUS_FIELD(model.n_heads), "Number of query heads", at_least_1),
        override_of(COEUS_FIELD(model.n_kv_heads),
                    "Number of key and value heads. `model.n_heads` must be a multiple of it", at_least_1),
        override_of(COEUS_FIELD(model.head_dim), "Width of a head", at_least_1)
            .defaults_to("`model.dim` / `model.n_heads`"),
        override_of(COEUS_FIELD(model.vocab_size), "Size of the vocabulary: rows of embedding and head",
                    at_least_1),
        override_of(COEUS_FIELD(model.ffn_hidden),
                    "Hidden width of the feed-forward layer. It is not rounded", at_least_1),
        override_of(COEUS_FIELD(model.ffn_dim_multiplier),
                    "The hidden width is 8/3 `model.dim` times this, rounded up to `model.multiple_of`",
                    positive),
        override_of(COEUS_FIELD(model.multiple_of), "The hidden width is rounded up to a multiple of this",
                    at_least_1),
        override_of(COEUS_FIELD(model.num_mtp_layers),
                    "Multi-token prediction: number of depths, layers that predict further tokens",
                    at_least_0),
        override_of(COEUS_FIELD(model.sliding_window),
                    "Number of tokens that a token attends to, with itself, in the layers with a window. 0: "
                    "all tokens before it",
                    at_least_0),
        override_of(COEUS_FIELD(model.attention_chunk),
                    "Number of tokens in a chunk: a token attends only to those of its own, in the layers "
                    "with RoPE. 0: no chunks",
                    at_least_0),
        override_of(COEUS_FIELD(model.kv_lora_rank),
                    "Latent attention: width of the latents of keys and values. 0: none", at_least_0),
        override_of(COEUS_FIELD(model.q_lora_rank),
                    "Latent attention: width of the latents of queries. 0: queries come from the input",
                    at_least_0),
        override_of(COEUS_FIELD(model.qk_rope_head_dim),
                    "Latent attention: the last columns of a head, which RoPE rotates", at_least_0),
        override_of(COEUS_FIELD(model.v_head_dim), "Width of a head of values. 0: `model.head_dim`",
                    at_least_0),
        override_of(
            COEUS_FIELD(model.rope_theta),
            "Base of the rotary position embedding. Layers with a window keep their own, if the flavour "
            "has one",
            positive),
        override_of(COEUS_FIELD(model.partial_rotary_factor),
                    "The part of a head that the rotary position embedding rotates: its first columns, an "
                    "even number of them. 1: all",
                    above_0_to_1),
        works(COEUS_FIELD(model.rope_scaling_type), to_run,
              "How the rotary embedding is changed for rows that are longer than those of the model's "
              "training: not at all, by position interpolation, dynamic NTK, Llama 3.1's scaling, or YaRN. "
              "LongRoPE comes with a Hugging Face folder")
            .one_of({"default", "linear", "dynamic", "llama3", "yarn"})
            .defaults_to(as_flavor),
        override_of(COEUS_FIELD(model.rope_scaling_factor),
                    "Factor by which rows may be longer than `model.rope_scaling_original_positions`. "
                    "Without `model.rope_scaling_type`, it is that of the flavour's scaling, or of Llama "
                    "3.1's. 1: not scaled",
                    positive),
        override_of(COEUS_FIELD(model.rope_scaling_original_positions),
                    "Length of the rows that the model was trained with before its rotary embedding was "
                    "scaled",
                    at_least_1),
        override_of(COEUS_FIELD(model.norm_eps), "Epsilon of the normalisation", positive),
        works(COEUS_FIELD(model.tied_embeddings), to_run, "Embedding and head share their weights")
            .defaults_to(as_flavor),
        override_of(COEUS_FIELD(model.embedding_scale), "Factor of the rows of the embedding", positive),
        override_of(COEUS_FIELD(model.residual_scale),
                    "Factor of the results of attention and feed-forward layer, before they are added to "
                    "the residual stream",
                    positive),
        override_of(COEUS_FIELD(model.attention_scale),
                    "Factor of the scores of attention. 0: `model.head_dim`^-1/2", not_negative),
        override_of(COEUS_FIELD(model.logits_scale), "Factor of the logits", positive),
        works(COEUS_FIELD(model.ffn_activation), to_run,
              "Function of the gate in feed-forward layers: SiLU (SwiGLU), or GELU in its form with tanh "
              "(GEGLU). Experts keep that of the flavour")
            .one_of({"silu", "gelu_tanh"})
            .defaults_to(as_flavor),
        works(COEUS_FIELD(model.parallel_block), to_run,
              "Attention and feed-forward layer take the output of one norm, side by side")
            .defaults_to(as_flavor),
        override_of(COEUS_FIELD(model.max_seq_len), "Length of the longest sequence that the model supports",
                    at_least_1),
        override_of(COEUS_FIELD(model.n_dense_layers),
                    "Number of layers without experts before those with experts", at_least_0),
        override_of(COEUS_FIELD(model.moe.num_experts),
                    "Number of experts in a layer. 0: all layers are dense", at_least_0),
        override_of(
            COEUS_FIELD(model.moe.num_shared_experts),
            "Number of experts that process every token. They are one layer, so many times as wide as an "
            "expert",
            at_least_0),
        override_of(COEUS_FIELD(model.moe.top_k), "Number of experts that process a token", at_least_1),
        override_of(COEUS_FIELD(model.moe.hidden), "Hidden width of an expert", at_least_1),
        override_of(COEUS_FIELD(model.moe.num_expert_groups),
                    "Number of groups of experts, of which a token uses only some", at_least_1),
        override_of(COEUS_FIELD(model.moe.num_limited_groups), "Number of groups that a token uses",
                    at_least_1),
        works(COEUS_FIELD(model.moe.score_func), to_run,
              "How the router makes scores of its logits: a softmax over all experts, or the sigmoid of each")
            .one_of({"softmax", "sigmoid"})
            .defaults_to(as_flavor),
        works(COEUS_FIELD(model.moe.gate_bias), to_run, "The router has a bias").defaults_to(as_flavor),
        works(COEUS_FIELD(model.moe.score_before_experts), to_run,
              "The weight of a token multiplies its expert's input, not its result")
            .defaults_to(as_flavor),
        works(COEUS_FIELD(model.moe.route_norm), to_run,
              "Divide the weights of a token's experts by their sum")
            .defaults_to(as_flavor),
        override_of(COEUS_FIELD(model.moe.route_scale), "Factor of the weights of a token's experts",
                    positive),
        override_of(
            COEUS_FIELD(model.moe.load_balance_coeff),
            "Amount by which a step changes the biases that balance the loads of experts. 0: there are no "
            "such biases",
            not_negative),
        override_of(COEUS_FIELD(model.moe.sequence_balance_coeff),
                    "Coefficient of a loss that balances the loads of experts within each sequence, which is "
                    "added to the cross entropy. 0: nothing is added",
                    not_negative),
        works(COEUS_FIELD(model.non_blocking_capacity_factor), to_nothing,
              "With `parallelism.expert_parallel_degree` above 1: room for the tokens that a rank's experts "
              "get at once, as a multiple of the mean. If more are sent, they come in further rounds, which "
              "are computed again in the backward pass. Steps that run as CUDA graphs have no rounds: a step "
              "with more tokens is computed twice. Less room takes less memory and more time")
            .obeys(capacity),

        works(COEUS_FIELD(optimizer.name), to_run,
              "Kind of optimizer. `AdamW`: decoupled weight decay. `Adam`: the decay is added to the "
              "gradient. `Muon`: for the matrices of blocks; AdamW updates all other parameters")
            .one_of(optimizer_names()),
        works(COEUS_FIELD(optimizer.lr), to_learning_rate, "Learning rate after the warm-up")
            .obeys(not_negative),
        works(COEUS_FIELD(optimizer.beta1), to_run, "Decay rate of the first moment").obeys(below_1),
        works(COEUS_FIELD(optimizer.beta2), to_run, "Decay rate of the second moment").obeys(below_1),
        works(COEUS_FIELD(optimizer.eps), to_run, "Added to the square root of the second moment")
            .obeys(not_negative),
        works(COEUS_FIELD(optimizer.weight_decay), to_run,
              "Weight decay. It applies to all parameters, also to norms and embeddings")
            .obeys(not_negative),
        works(COEUS_FIELD(optimizer.weight_decay_exclude), to_run, "Kinds of parameters without weight decay")
            .one_of(role_names()),
        works(COEUS_FIELD(optimizer.momentum), to_run, "Muon: decay rate of the momentum").obeys(below_1),
        works(COEUS_FIELD(optimizer.nesterov), to_run, "Muon: use Nesterov momentum"),
        works(COEUS_FIELD(optimizer.ns_steps), to_run, "Muon: number of Newton-Schulz iterations")
            .obeys(below_100),
        works(COEUS_FIELD(optimizer.ns_coefficients), to_run,
              "Muon: the three coefficients of a Newton-Schulz iteration")
            .obeys(finite),
        works(COEUS_FIELD(optimizer.adjust_lr_fn), to_run,
              "Muon: factor by which the learning rate of a matrix is multiplied. `original`: `max(1, "
              "rows/columns)^1/2`. `match_rms_adamw`: `0.2 max(rows, columns)^1/2`. `spectral_unclamped`: "
              "`(rows/columns)^1/2`")
            .one_of({"original", "match_rms_adamw", "spectral_unclamped"}),
        works(COEUS_FIELD(optimizer.implementation), to_run,
              "`fused_opt_states_bf16` keeps Adam's moments in bfloat16 and the weights in float32. The "
              "other choices are all the same here")
            .one_of({"fused", "foreach", "for-loop", "fused_opt_states_bf16"}),
        works(COEUS_FIELD(optimizer.param_groups), to_run,
              "Groups of parameters with their own optimizer or options (doc/optimizers.md). Each is a table "
              "with `pattern`, `roles`, `optimizer_name` and `optimizer_kwargs`. If several groups match a "
              "parameter, the first one applies"),
        no_effect("optimizer.optimizer_factory_kwargs_by_name", Type::words,
                  "it is for optimizers that Python makes; optimizer.param_groups sets the options of each "
                  "group of parameters",
                  "Options for each kind of optimizer"),
        refused(
            "optimizer.early_step_in_backward", Type::boolean,
            "gradients are clipped by their global norm, and a step whose norm is not finite is not taken: "
            "no weight can be updated before the last gradient is there",
            "Update each weight as soon as its gradient is complete"),

        works(COEUS_FIELD(lr_scheduler.warmup_steps), to_learning_rate,
              "Number of steps in which the learning rate rises linearly to `optimizer.lr`")
            .obeys(at_least_0),
        works(COEUS_FIELD(lr_scheduler.total_steps), to_learning_rate, "Length of the schedule, in steps")
            .obeys(at_least_1)
            .defaults_to("`training.steps`"),
        works(COEUS_FIELD(lr_scheduler.decay_ratio), to_learning_rate,
              "Fraction of the schedule, at its end, that is used for decay")
            .obeys(fraction)
            .defaults_to("everything after the warm-up"),
        works(COEUS_FIELD(lr_scheduler.decay_type), to_learning_rate, "Shape of the decay")
            .one_of({"linear", "sqrt", "cosine"}),
        works(COEUS_FIELD(lr_scheduler.min_lr_factor), to_learning_rate,
              "The learning rate decays to this fraction of `optimizer.lr`")
            .obeys(fraction),

        works(COEUS_FIELD(loss.loss_fn), to_run,
              "Kind of loss. `MTPLoss` is that of multi-token prediction (`model.num_mtp_layers`), the "
              "others that of "
              "the next token")
            .one_of({"CrossEntropyLoss", "ChunkedLossWrapper", "MSELoss", "MTPLoss"})
            .refuses({"MSELoss"},
                     "it is the loss of models that make images; a language model has none; remove it")
            .defaults_to("as the model needs"),
        works(COEUS_FIELD(loss.mtp_scale), to_run,
              "Multi-token prediction: weight of the mean loss of all depths")
            .obeys(not_negative),
        works(
            COEUS_FIELD(loss.z_loss_weight), to_run,
            "Weight of the square of log sum exp of the logits, which is added to the loss of each label in "
            "training (z-loss). It keeps the logits of the next token from drifting; 1e-4 is usual. 0: "
            "nothing is added")
            .obeys(not_negative),
    };
}

}  // namespace coeus::config
