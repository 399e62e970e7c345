// SPDX-License-Identifier: Apache-2.0
#include "suggestions.hpp"

#include "coeus/base/text.hpp"
#include "option.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

namespace coeus::config {

namespace {

std::string last_part_of(const std::string& name) {
    return name.substr(name.rfind('.') + 1);
}

std::string section_of(const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? "" : name.substr(0, dot);
}

// As words of other trainers are written: small letters, with "_" for "-".
std::string plain_word(std::string word) {
    for (char& c : word) c = c == '-' ? '_' : char(std::tolower(uint8_t(c)));
    return word;
}

// The name whose last part is nearest to that of `name`; "" if none is near.
std::string nearest_by_last_part(const std::string& name, const Words& names) {
    Words parts, alike;
    for (const std::string& known : names) parts.push_back(last_part_of(known));
    const std::string near = nearest_name(last_part_of(name), parts);
    if (near.empty()) return "";
    for (const std::string& known : names)
        if (last_part_of(known) == near) alike.push_back(known);
    const std::string best = nearest_name(name, alike);
    return best.empty() ? alike.front() : best;
}

std::string suggestion(const std::string& name, const Words& names) {
    const auto those = [&](const auto& condition) {
        Words some;
        std::ranges::copy_if(names, std::back_inserter(some), condition);
        return some;
    };
    const std::string last = last_part_of(name), section = section_of(name);
    const Words elsewhere = those([&](const std::string&known) { return last_part_of(known) == last; }),
                here = those([&](const std::string&known) { return section_of(known) == section; });
    for (const Words& some : {elsewhere, here, names})
        if (std::string near = nearest_by_last_part(name, some); !near.empty()) return near;
    return "";
}

constexpr const char* same_command =
    "the same command resumes from the newest checkpoint (checkpoint.enable)";
constexpr const char* no_router_z_loss =
    "routers have no z-loss here: loss.z_loss_weight is that of the output's logits, and "
    "model.moe.sequence_balance_coeff balances experts";

}  // namespace

const std::vector<ForeignName>& foreign_names() {
    static const std::vector<ForeignName> all = {
        {"tp", "parallelism.tensor_parallel_degree", ""},
        {"tp_size", "parallelism.tensor_parallel_degree", ""},
        {"tp_degree", "parallelism.tensor_parallel_degree", ""},
        {"tensor_parallel_size", "parallelism.tensor_parallel_degree", ""},
        {"tensor_model_parallel_size", "parallelism.tensor_parallel_degree", ""},
        {"pp", "parallelism.pipeline_parallel_degree", ""},
        {"pp_size", "parallelism.pipeline_parallel_degree", ""},
        {"pipeline_model_parallel_size", "parallelism.pipeline_parallel_degree", ""},
        {"cp", "parallelism.context_parallel_degree", ""},
        {"cp_size", "parallelism.context_parallel_degree", ""},
        {"context_parallel_size", "parallelism.context_parallel_degree", ""},
        {"ep", "parallelism.expert_parallel_degree", ""},
        {"ep_size", "parallelism.expert_parallel_degree", ""},
        {"expert_model_parallel_size", "parallelism.expert_parallel_degree", ""},
        {"dp", "parallelism.data_parallel_shard_degree", "-1 takes the ranks that are left"},
        {"dp_size", "parallelism.data_parallel_shard_degree", "-1 takes the ranks that are left"},
        {"zero_stage", "parallelism.fsdp_reshard_after_forward",
         "parameters are always divided over dp_shard"},
        {"sharding_strategy", "parallelism.fsdp_reshard_after_forward", ""},
        {"no_sync", "parallelism.fsdp_sum_gradients", "step: once a step"},
        {"sync_each_batch", "parallelism.fsdp_sum_gradients", "local_batch: after each local batch"},
        {"sequence_parallel", "", "it is always on with parallelism.tensor_parallel_degree above 1"},
        {"fp16", "training.mixed_precision_param", "bfloat16 or float32"},
        {"bf16", "training.mixed_precision_param", "bfloat16 or float32"},
        {"precision", "training.mixed_precision_param", "bfloat16 or float32"},
        {"torch_dtype", "training.mixed_precision_param", "bfloat16 or float32"},
        {"fp8", "model.converters", "quantize.linear.float8"},
        {"learning_rate", "optimizer.lr", ""},
        {"max_lr", "optimizer.lr", ""},
        {"min_lr", "lr_scheduler.min_lr_factor", "a fraction of optimizer.lr"},
        {"min_lr_ratio", "lr_scheduler.min_lr_factor", ""},
        {"lr_decay_style", "lr_scheduler.decay_type", ""},
        {"lr_scheduler_type", "lr_scheduler.decay_type", ""},
        {"lr_decay_iters", "lr_scheduler.total_steps", ""},
        {"lr_warmup_iters", "lr_scheduler.warmup_steps", ""},
        {"lr_warmup_steps", "lr_scheduler.warmup_steps", ""},
        {"num_warmup_steps", "lr_scheduler.warmup_steps", ""},
        {"warmup_ratio", "lr_scheduler.warmup_steps", "a number of steps"},
        {"warmup", "lr_scheduler.warmup_steps", ""},
        {"adam_beta1", "optimizer.beta1", ""},
        {"adam_beta2", "optimizer.beta2", ""},
        {"adam_eps", "optimizer.eps", ""},
        {"adam_epsilon", "optimizer.eps", ""},
        {"optim", "optimizer.name", ""},
        {"z_loss", "loss.z_loss_weight", ""},
        {"z_loss_coef", "loss.z_loss_weight", ""},
        {"z_loss_coeff", "loss.z_loss_weight", ""},
        {"z_loss_multiplier", "loss.z_loss_weight", ""},
        {"lm_z_loss", "loss.z_loss_weight", ""},
        {"use_z_loss", "loss.z_loss_weight", "a number; 1e-4 is usual"},
        {"softmax_auxiliary_loss", "loss.z_loss_weight", "a number; 1e-4 is usual"},
        {"auxiliary_loss_multiplier", "loss.z_loss_weight", ""},
        {"moe_z_loss_coeff", "", no_router_z_loss},
        {"moe_z_loss_weight", "", no_router_z_loss},
        {"moe_zloss_weight", "", no_router_z_loss},
        {"router_z_loss_coef", "", no_router_z_loss},
        {"router_z_loss_weight", "", no_router_z_loss},
        {"moe_router_z_loss", "", no_router_z_loss},
        {"grad_clip", "training.max_norm", ""},
        {"clip_grad", "training.max_norm", ""},
        {"max_grad_norm", "training.max_norm", ""},
        {"gradient_clipping", "training.max_norm", ""},
        {"gradient_clip_val", "training.max_norm", ""},
        {"max_steps", "training.steps", ""},
        {"max_iters", "training.steps", ""},
        {"train_iters", "training.steps", ""},
        {"train_steps", "training.steps", ""},
        {"num_train_steps", "training.steps", ""},
        {"epochs", "training.steps", "the start of a run says how many epochs they are"},
        {"num_epochs", "training.steps", "the start of a run says how many epochs they are"},
        {"num_train_epochs", "training.steps", "the start of a run says how many epochs they are"},
        {"micro_batch_size", "training.local_batch_size", ""},
        {"per_device_train_batch_size", "training.local_batch_size", ""},
        {"per_device_eval_batch_size", "validation.local_batch_size", ""},
        {"gradient_accumulation_steps", "training.global_batch_size", "sequences in a step of all ranks"},
        {"accumulate_grad_batches", "training.global_batch_size", "sequences in a step of all ranks"},
        {"batch_accumulation_per_replica", "training.global_batch_size", "sequences in a step of all ranks"},
        {"sequence_length", "training.seq_len", ""},
        {"sequence_len", "training.seq_len", ""},
        {"seq_length", "training.seq_len", ""},
        {"max_length", "training.seq_len", ""},
        {"max_seq_length", "training.seq_len", ""},
        {"block_size", "training.seq_len", ""},
        {"context_length", "training.seq_len", ""},
        {"output_dir", "job.dump_folder", ""},
        {"save_dir", "job.dump_folder", ""},
        {"out_dir", "job.dump_folder", ""},
        {"save_steps", "checkpoint.interval", ""},
        {"save_interval", "checkpoint.interval", ""},
        {"save_every", "checkpoint.interval", ""},
        {"checkpoint_interval", "checkpoint.interval", ""},
        {"save_total_limit", "checkpoint.keep_latest_k", ""},
        {"resume", "", same_command},
        {"resume_from", "", same_command},
        {"resume_from_checkpoint", "", same_command},
        {"resume_checkpoint_path", "", same_command},
        {"load", "checkpoint.initial_load_path", ""},
        {"pretrained_checkpoint", "checkpoint.initial_load_path", ""},
        {"model_name_or_path", "model.hf_assets_path",
         "a folder that you downloaded, with model.flavor = \"hf\""},
        {"base_model", "model.hf_assets_path", "a folder that you downloaded, with model.flavor = \"hf\""},
        {"tokenizer_model", "model.tokenizer_path", ""},
        {"tokenizer_name_or_path", "model.tokenizer_path", ""},
        {"data_path", "training.dataset_path", ""},
        {"train_data_path", "training.dataset_path", ""},
        {"train_file", "training.dataset_path", ""},
        {"datasets", "training.dataset_path", ""},
        {"num_layers", "model.n_layers", ""},
        {"num_hidden_layers", "model.n_layers", ""},
        {"hidden_size", "model.dim", ""},
        {"num_attention_heads", "model.n_heads", ""},
        {"num_key_value_heads", "model.n_kv_heads", ""},
        {"num_query_groups", "model.n_kv_heads", ""},
        {"intermediate_size", "model.ffn_hidden", ""},
        {"ffn_hidden_size", "model.ffn_hidden", ""},
        {"eval_steps", "validation.freq", ""},
        {"eval_interval", "validation.freq", ""},
        {"eval_iters", "validation.steps", ""},
        {"logging_steps", "metrics.log_freq", ""},
        {"log_interval", "metrics.log_freq", ""},
        {"gradient_checkpointing", "activation_checkpoint.mode", ""},
        {"recompute_granularity", "activation_checkpoint.mode", ""},
        {"recompute_activations", "activation_checkpoint.mode", ""},
        {"use_flash_attn", "kernels.attention", "it is always on"},
        {"flash_attention", "kernels.attention", "it is always on"},
        {"wandb_project", "metrics.enable_tensorboard", "doc/metrics.md shows how to follow a run with W&B"},
        {"report_to", "metrics.enable_tensorboard", "doc/metrics.md shows how to follow a run with W&B"},
    };
    return all;
}

std::string unknown_option(const std::string& name, const char* dashes, const Words& others) {
    const std::string begin = fmt::format("unknown option {}{}; ", dashes, name);
    const std::string word = plain_word(last_part_of(name));
    if (const auto known = std::ranges::find(foreign_names(), word, &ForeignName::word);
        known != foreign_names().end()) {
        const std::string option = known->option, remark = known->remark;
        if (option.empty()) return begin + remark;
        // remarks are on the option of the table, not on its namesake
        const std::string namesake = section_of(name) + "." + last_part_of(option);
        if (namesake != option && find_option(namesake) != nullptr)
            return fmt::format("{}did you mean {}{}?", begin, dashes, namesake);
        return fmt::format("{}did you mean {}{}?{}", begin, dashes, option,
                           remark.empty() ? "" : fmt::format(" ({})", remark));
    }
    Words names = others;
    for (const Option& option : options()) names.push_back(option.name);
    for (const Alias& alias : aliases()) names.push_back(alias.old_name);
    const std::string near = suggestion(name, names);
    return begin + (near.empty() ? "`coeus help options` lists all of them"
                                 : fmt::format("did you mean {}{}?", dashes, near));
}

std::string foreign_value(const std::string& value, const Words& choices) {
    // a word with several meanings has the nearest first
    constexpr std::pair<const char*, const char*> values[] = {
        {"bf16", "bfloat16"}, {"fp32", "float32"}, {"f32", "float32"},       {"fp16", "float16"},
        {"fp16", "bfloat16"}, {"half", "float16"}, {"half", "bfloat16"},     {"float16", "bfloat16"},
        {"fp64", "float64"},  {"gpu", "cuda"},     {"adamw_torch", "AdamW"}, {"adamw_torch_fused", "AdamW"}};
    const std::string word = plain_word(value);
    for (const auto& [known, meant] : values)
        if (word == known && std::ranges::find(choices, meant) != choices.end()) return meant;
    return "";
}

}  // namespace coeus::config
