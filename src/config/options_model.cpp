// SPDX-License-Identifier: Apache-2.0
// Options of the model and of its optimizer.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* own_loss =
    "the loss is the cross entropy of the model's vocabulary, cut as suits the machine";
constexpr const char* one_attention =
    "attention is one kernel; training.document_mask says whether it stays within documents";
constexpr const char* one_optimizer = "there is one implementation, in one pass over the weights";

Option override_of(Field field, const char* meaning, const Rule& rule) {
    return works(field, meaning).obeys(rule).defaults_to("the flavour's");
}

}  // namespace

std::vector<Option> model_options() {
    return {
        works(COEUS_FIELD(model.name), "model family")
            .one_of({"llama3", "llama2", "llama4", "deepseek_v3", "qwen3", "gpt_oss", "flux"},
                    {"llama3", "llama2"}),
        works(COEUS_FIELD(model.flavor),
              "size of the model, a name such as 8B; hf: the shapes of hf_assets_path/config.json"),
        works(COEUS_FIELD(model.hf_assets_path),
              "folder with the tokenizer, and config.json and weights where they are used"),
        works(COEUS_FIELD(model.tokenizer_path),
              "the tokenizer's place where it is not hf_assets_path (torchtitan's older option)"),
        works(COEUS_FIELD(model.norm_type),
              "kind of normalisation; fused_rmsnorm is rmsnorm, np_layernorm has no weights")
            .one_of({"rmsnorm", "fused_rmsnorm", "layernorm", "np_layernorm"}),
        not_built(COEUS_FIELD(model.converters), "training in 8 bits",
                  "what makes parts of the model compute in few bits")
            .one_of({"quantize.linear.float8", "quantize.grouped_mm.float8", "quantize.linear.mx",
                     "quantize.grouped_mm.mx", "float8", "mx"}),
        no_effect("model.print_after_conversion", Type::boolean, "the model is not rewritten by converters",
                  "print the converted model"),
        no_effect("model.attn_backend", Type::text, one_attention, "implementation of attention")
            .one_of({"sdpa", "flex", "flex_flash", "varlen"}),
        no_effect("model.tp_gemm_backend", Type::text, "there is one kind of GEMM",
                  "implementation of GEMMs under tensor parallelism")
            .one_of({"default", "dist_gemm"})
            .idle_at({std::string("default")}),
        no_effect("model.moe_comm_backend", Type::text, "tokens travel to experts through MPI",
                  "how tokens travel to experts")
            .one_of({"standard", "deepep", "hybridep", "minimal_async_ep"}),
        no_effect("model.non_blocking_capacity_factor", Type::real, "tokens travel to experts through MPI",
                  "room for tokens of other ranks, as a multiple of an even share"),
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
        works(COEUS_FIELD(model.tied_embeddings), "embedding and head share their weights")
            .defaults_to("the flavour's"),
        override_of(COEUS_FIELD(model.max_seq_len), "longest sequence the model is made for", at_least_1),

        works(COEUS_FIELD(optimizer.name),
              "kind of optimizer; AdamW decays weights apart from the gradient, Adam through it")
            .one_of({"AdamW", "Adam"}),
        works(COEUS_FIELD(optimizer.lr), "learning rate after the warm-up").obeys(not_negative),
        works(COEUS_FIELD(optimizer.beta1), "decay of the first moment").obeys(below_1),
        works(COEUS_FIELD(optimizer.beta2), "decay of the second moment").obeys(below_1),
        works(COEUS_FIELD(optimizer.eps), "added to the square root of the second moment")
            .obeys(not_negative),
        works(COEUS_FIELD(optimizer.weight_decay), "decay of all weights, norms and embeddings included")
            .obeys(not_negative),
        no_effect("optimizer.implementation", Type::text, one_optimizer, "PyTorch's kernel of the optimizer")
            .one_of({"fused", "foreach", "for-loop", "fused_opt_states_bf16"})
            .refuses({"fused_opt_states_bf16"},
                     "moments in bfloat16 beside weights in float32 are not built yet; training.dtype = "
                     "\"bfloat16\" keeps weights and moments in bfloat16"),
        no_effect("optimizer.fused", Type::boolean, one_optimizer, "use PyTorch's fused optimizer"),
        no_effect("optimizer.foreach", Type::boolean, one_optimizer, "use PyTorch's foreach optimizer"),
        not_built("optimizer.param_groups", Type::words, "an optimizer of one's own for some parameters",
                  "groups of parameters by pattern, each with its optimizer"),
        not_built("optimizer.optimizer_factory_kwargs_by_name", Type::words,
                  "an optimizer of one's own for some parameters", "options of each optimizer"),
        refused(
            "optimizer.early_step_in_backward", Type::boolean,
            "gradients are clipped by their global norm, and a step whose norm is not finite is not taken: "
            "no weight can be updated before the last gradient is there",
            "update each weight as soon as its gradient is complete"),

        works(COEUS_FIELD(lr_scheduler.warmup_steps),
              "number of steps in which the learning rate rises from 0")
            .obeys(at_least_0),
        works(COEUS_FIELD(lr_scheduler.total_steps), "length of the schedule, in steps")
            .obeys(at_least_1)
            .defaults_to("training.steps"),
        works(COEUS_FIELD(lr_scheduler.decay_ratio),
              "part of the schedule, at its end, in which the learning rate falls")
            .obeys(fraction)
            .defaults_to("all after the warm-up"),
        works(COEUS_FIELD(lr_scheduler.decay_type), "shape of the fall").one_of({"linear", "sqrt", "cosine"}),
        works(COEUS_FIELD(lr_scheduler.min_lr_factor), "the learning rate falls to this part of optimizer.lr")
            .obeys(fraction),

        no_effect("loss.num_chunks", Type::integer, own_loss,
                  "number of pieces in which the loss is computed")
            .idle_at({int64_t(8)}),
        no_effect("loss.loss_fn", Type::text, own_loss, "kind of loss")
            .one_of({"CrossEntropyLoss", "ChunkedLossWrapper", "MSELoss", "MTPLoss"})
            .refuses({"MSELoss", "MTPLoss"}, "losses other than the cross entropy are not built yet"),
        no_effect("loss.global_vocab_size", Type::integer, own_loss,
                  "number of columns of the logits over all ranks"),
        not_built("loss.mtp_scale", Type::real, "multi-token prediction",
                  "weight of the losses of further tokens"),

        dormant(COEUS_FIELD(encoder.t5_encoder), "model.name = \"flux\"", "T5 text encoder"),
        dormant(COEUS_FIELD(encoder.clip_encoder), "model.name = \"flux\"", "CLIP text encoder"),
        dormant(COEUS_FIELD(encoder.autoencoder_path), "model.name = \"flux\"", "autoencoder's weights"),
        dormant(COEUS_FIELD(encoder.max_t5_encoding_len), "model.name = \"flux\"", "longest T5 prompt")
            .obeys(at_least_1),
        dormant(COEUS_FIELD(inference.save_img_folder), "model.name = \"flux\"",
                "folder of pictures (inside dump_folder, unless absolute)"),
        dormant(COEUS_FIELD(inference.prompts_path), "model.name = \"flux\"", "file of prompts"),
        dormant(COEUS_FIELD(inference.local_batch_size), "model.name = \"flux\"", "prompts at a time")
            .obeys(at_least_1),
    };
}

}  // namespace coeus::config
