// SPDX-License-Identifier: Apache-2.0
// Options of the model and of its optimizer.
#include "coeus/optim/param_groups.hpp"
#include "option.hpp"

namespace coeus::config {

namespace {

Words all_families() {
    Words names = family_names();
    names.insert(names.end(), families_not_built().begin(), families_not_built().end());
    return names;
}

// A field of the model's configuration, of the same name (models/config_fields.hpp).
Option override_of(Field field, const char* meaning, const Rule& rule) {
    return works(field, to_run, meaning).obeys(rule).defaults_to("the flavour's");
}

}  // namespace

std::vector<Option> model_options() {
    return {
        works(COEUS_FIELD(model.name), to_run, "model family").one_of(all_families(), family_names()),
        works(COEUS_FIELD(model.flavor), to_run,
              "size of the model, a name such as 8B; hf: the shapes of hf_assets_path/config.json"),
        works(COEUS_FIELD(model.hf_assets_path), to_nothing,
              "folder with the tokenizer, and config.json and weights where they are used"),
        works(COEUS_FIELD(model.tokenizer_path), to_nothing,
              "the tokenizer's place where it is not hf_assets_path (torchtitan's older option)"),
        works(COEUS_FIELD(model.norm_type), to_run,
              "kind of normalisation; fused_rmsnorm is rmsnorm, np_layernorm has no weights")
            .one_of({"rmsnorm", "fused_rmsnorm", "layernorm", "np_layernorm"}),
        not_built(COEUS_FIELD(model.converters), to_run, "training in 8 bits",
                  "what makes parts of the model compute in few bits")
            .one_of({"quantize.linear.float8", "quantize.grouped_mm.float8", "quantize.linear.mx",
                     "quantize.grouped_mm.mx", "float8", "mx"}),
        not_built("model.num_mtp_layers", Type::integer, "multi-token prediction",
                  "number of layers that predict further tokens"),
        override_of(COEUS_FIELD(model.dim), "width of the residual stream", at_least_1),
        override_of(COEUS_FIELD(model.n_layers), "number of blocks", at_least_1),
        override_of(COEUS_FIELD(model.n_heads), "query heads", at_least_1),
        override_of(COEUS_FIELD(model.n_kv_heads), "key and value heads; must divide n_heads", at_least_1),
        override_of(COEUS_FIELD(model.head_dim), "width of a head", at_least_1).defaults_to("dim / n_heads"),
        override_of(COEUS_FIELD(model.vocab_size), "rows of embedding and head", at_least_1),
        override_of(COEUS_FIELD(model.ffn_hidden), "hidden width of the feed-forward layer, as it is",
                    at_least_1),
        override_of(COEUS_FIELD(model.ffn_dim_multiplier),
                    "hidden width = 8/3 dim times this, rounded up to multiple_of", positive),
        override_of(COEUS_FIELD(model.multiple_of), "what the hidden width is rounded up to", at_least_1),
        override_of(COEUS_FIELD(model.rope_theta), "base of the rotary embedding", positive),
        override_of(COEUS_FIELD(model.rope_scaling_factor),
                    "Llama 3.1's scaling of long wavelengths; 1: none", positive),
        override_of(COEUS_FIELD(model.norm_eps), "epsilon of the normalisation", positive),
        works(COEUS_FIELD(model.tied_embeddings), to_run, "embedding and head share their weights")
            .defaults_to("the flavour's"),
        override_of(COEUS_FIELD(model.max_seq_len), "longest sequence the model is made for", at_least_1),

        works(COEUS_FIELD(optimizer.name), to_run,
              "kind of optimizer; AdamW decays weights apart from the gradient, Adam through it; Muon is for "
              "the matrices of blocks, with AdamW for all else")
            .one_of(optimizer_names()),
        works(COEUS_FIELD(optimizer.lr), to_learning_rate, "learning rate after the warm-up")
            .obeys(not_negative),
        works(COEUS_FIELD(optimizer.beta1), to_run, "decay of the first moment").obeys(below_1),
        works(COEUS_FIELD(optimizer.beta2), to_run, "decay of the second moment").obeys(below_1),
        works(COEUS_FIELD(optimizer.eps), to_run, "added to the square root of the second moment")
            .obeys(not_negative),
        works(COEUS_FIELD(optimizer.weight_decay), to_run,
              "decay of all weights, norms and embeddings included")
            .obeys(not_negative),
        works(COEUS_FIELD(optimizer.weight_decay_exclude), to_run, "kinds of parameters that do not decay")
            .one_of(role_names()),
        works(COEUS_FIELD(optimizer.momentum), to_run, "Muon: decay of the momentum").obeys(below_1),
        works(COEUS_FIELD(optimizer.nesterov), to_run, "Muon: Nesterov's look ahead"),
        works(COEUS_FIELD(optimizer.ns_steps), to_run, "Muon: iterations of Newton and Schulz")
            .obeys(below_100),
        works(COEUS_FIELD(optimizer.ns_coefficients), to_run, "Muon: the three coefficients of an iteration")
            .obeys(finite),
        works(COEUS_FIELD(optimizer.adjust_lr_fn), to_run,
              "Muon: what the learning rate of a matrix is multiplied by: max(1, rows/columns)^1/2; "
              "0.2 max(rows, columns)^1/2; (rows/columns)^1/2")
            .one_of({"original", "match_rms_adamw", "spectral_unclamped"}),
        works(COEUS_FIELD(optimizer.implementation), to_run,
              "fused_opt_states_bf16 keeps Adam's moments in bfloat16 beside weights in float32; the others "
              "are one here")
            .one_of({"fused", "foreach", "for-loop", "fused_opt_states_bf16"}),
        works(COEUS_FIELD(optimizer.param_groups), to_run,
              "parameters that are updated otherwise, by pattern or roles, with optimizer_name and "
              "optimizer_kwargs; the first that takes a parameter holds"),
        not_built("optimizer.optimizer_factory_kwargs_by_name", Type::words, "options by kind of optimizer",
                  "options of each kind of optimizer; optimizer.param_groups has them for each group"),
        refused(
            "optimizer.early_step_in_backward", Type::boolean,
            "gradients are clipped by their global norm, and a step whose norm is not finite is not taken: "
            "no weight can be updated before the last gradient is there",
            "update each weight as soon as its gradient is complete"),

        works(COEUS_FIELD(lr_scheduler.warmup_steps), to_learning_rate,
              "number of steps in which the learning rate rises from 0")
            .obeys(at_least_0),
        works(COEUS_FIELD(lr_scheduler.total_steps), to_learning_rate, "length of the schedule, in steps")
            .obeys(at_least_1)
            .defaults_to("training.steps"),
        works(COEUS_FIELD(lr_scheduler.decay_ratio), to_learning_rate,
              "part of the schedule, at its end, in which the learning rate falls")
            .obeys(fraction)
            .defaults_to("all after the warm-up"),
        works(COEUS_FIELD(lr_scheduler.decay_type), to_learning_rate, "shape of the fall")
            .one_of({"linear", "sqrt", "cosine"}),
        works(COEUS_FIELD(lr_scheduler.min_lr_factor), to_learning_rate,
              "the learning rate falls to this part of optimizer.lr")
            .obeys(fraction),

        not_built("loss.mtp_scale", Type::real, "multi-token prediction",
                  "weight of the losses of further tokens"),
    };
}

}  // namespace coeus::config
