// SPDX-License-Identifier: Apache-2.0
// Every name that Coeus knows: its own options, those of torchtitan's TOML decks (2025 and 2026), their names
// of 2024, and those of its Python configuration (2026). Each one works, or is accepted with one notice that
// explains why it has no effect, or is refused by name. reference.cpp checks that no name of torchtitan is
// missing.
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "unit/config/listed_options.hpp"

#include <algorithm>
#include <set>

using namespace coeus;
using Catch::Contains;

namespace {

enum class Outcome {
    works,         // the config changes; no notice
    so,            // nothing changes and there is no notice, since Coeus always behaves so
    idle,          // accepted; one notice names it and explains why it has no effect
    refused,       // a real run ends with a message that names it: not implemented yet, or the reason
    retired,       // ends with a message that names the replacement
    of_converter,  // works with the converter that it belongs to, else idle
};
using enum Outcome;

struct Walk {
    const char* section;
    Outcome outcome;
    std::vector<std::string> settings;  // name=value, other than the default
};

// clang-format off
const std::vector<Walk> table = {
    {"job", works, {"dump_folder=/x", "description=x", "print_config=true", "save_config_file=x"}},
    {"job", idle, {"custom_config_module=x", "use_for_integration_test=true"}},
    {"", works, {"dump_folder=/x", "hf_assets_path=/x"}},
    {"job", works, {"config_file=" + test::paths::source() + "/inputs/llama3_workstation.toml", "print_args=true"}},
    {"", works, {"device=cuda", "quiet=true", "profile=true"}},
    {"", retired, {"module=llama3", "config=llama3_8b", "tokenizer=x"}},
    {"log", works, {"ranks=1", "quiet=true"}},
    {"debug", works, {"seed=1", "moe_force_load_balance=true", "print_config=true", "save_config_file=x"}},
    {"debug", so, {"deterministic=true"}},
    {"debug", idle, {"deterministic=false", "deterministic_warn_only=true", "spmd_typechecking=true",
        "detect_anomaly=true", "batch_invariant=true", "enable_structured_logging=true"}},
    {"kernels", works, {"autotune=false", "autotune_recheck=true", "sm_margin=16", "allow_tf32=true", "attention=own", "attention=mma", "attention=cudnn", "attention=cudnn_forward", "deterministic=false", "experts=mma", "experts=wgmma", "experts=tma", "experts_in_8_bits=true", "experts_in_8_bits=false", "stream_priorities=false", "logits_chunk_mib=512"}},
    {"profiling", works, {"kernels=true"}},
    {"profiling", works, {"enable_profiling=true", "save_traces_folder=x", "profile_freq=9", "profiler_active=2",
        "profiler_warmup=2", "enable_memory_snapshot=true", "memory_snapshot_freq=1", "save_memory_snapshot_folder=x",
        "memory_snapshot_max_entries=1"}},
    {"profiler", works, {"enable_profiling=true", "save_traces_folder=x", "profile_freq=9", "profiler_active=2",
        "profiler_warmup=2", "enable_memory_snapshot=true", "memory_snapshot_freq=1", "save_memory_snapshot_folder=x",
        "memory_snapshot_max_entries=1"}},
    {"profiling", idle, {"profiler_repeat=1", "profiler_skip_first=1", "profiler_skip_first_wait=1"}},
    {"profiler", idle, {"profiler_repeat=1", "profiler_skip_first=1", "profiler_skip_first_wait=1"}},
    {"metrics", works, {"log_freq=1", "disable_color_printing=true", "enable_color_printing=false", "straggler_freq=7",
        "straggler_percent=1"}},
    {"metrics",
     works,
     {"enable_tensorboard=true", "save_tb_folder=x", "save_for_all_ranks=true", "rank_0_only=false"}},
    {"metrics", idle, {"enable_wandb=true"}},
    {"model", works, {"name=llama2", "name=gpt_oss", "flavor=8B", "hf_assets_path=/x", "tokenizer_path=/x", "norm_type=layernorm"}},
    {"model", works, {"dim=512", "n_layers=2", "n_heads=4", "n_kv_heads=4", "head_dim=32", "vocab_size=512",
        "ffn_hidden=512", "ffn_dim_multiplier=1.5", "multiple_of=64", "rope_theta=1e6", "rope_scaling_factor=8", "rope_scaling_type=yarn", "rope_scaling_original_positions=2048",
        "norm_eps=1e-6", "sliding_window=64", "attention_chunk=64", "partial_rotary_factor=0.5", "kv_lora_rank=32", "q_lora_rank=16", "qk_rope_head_dim=8", "v_head_dim=16", "initial_values=2025", "n_dense_layers=1", "num_mtp_layers=1", "embedding_scale=12", "residual_scale=0.22", "attention_scale=0.1", "logits_scale=0.25", "ffn_activation=gelu_tanh", "parallel_block=true", "tied_embeddings=true", "max_seq_len=4096", "non_blocking_capacity_factor=1.5"}},
    {"model", works, {"moe.num_experts=4", "moe.num_shared_experts=1", "moe.top_k=2", "moe.hidden=64",
        "moe.num_expert_groups=2", "moe.num_limited_groups=1", "moe.route_norm=true", "moe.route_scale=2.5",
        "moe.load_balance_coeff=0", "moe.sequence_balance_coeff=1e-4", "moe.score_func=sigmoid", "moe.gate_bias=true", "moe.score_before_experts=true"}},
    {"model", refused, {"name=flux"}},
    {"model", works, {"converters=quantize.linear.float8", "converters=quantize.linear.mx",
        "converters=quantize.grouped_mm.float8", "converters=quantize.grouped_mm.mx", "converters=float8", "converters=mx",
        "print_after_conversion=true", "frozen=output"}},
    {"model", idle, {"attn_backend=flex", "attn_backend=sdpa", "attn_backend=flex_flash",
        "attn_backend=varlen", "tp_gemm_backend=dist_gemm",
        "moe_comm_backend=deepep"}},
    {"optimizer", works, {"name=Adam", "lr=1", "beta1=0.5", "beta2=0.5", "eps=1", "weight_decay=0"}},
    {"model", so, {"tp_gemm_backend=default"}},
    {"optimizer", works, {"implementation=foreach", "implementation=fused_opt_states_bf16", "weight_decay_exclude=norm",
        "name=Muon", "param_groups={roles = \"norm\"}"}},
    {"optimizer", idle, {"momentum=0.5", "nesterov=false", "ns_steps=3", "ns_coefficients=2,-1.5,0.5",  // for Muon
        "adjust_lr_fn=match_rms_adamw"}},
    {"optimizer", idle, {"fused=true", "foreach=true"}},
    {"optimizer", refused, {"early_step_in_backward=true"}},
    {"optimizer", idle, {"optimizer_factory_kwargs_by_name=x"}},
    {"optimizer", so, {"early_step_in_backward=false"}},
    {"lr_scheduler", works, {"warmup_steps=1", "total_steps=5", "decay_ratio=0.5", "decay_type=cosine",
        "min_lr_factor=0.5"}},
    {"training", works, {"dataset=x", "dataset_path=y", "local_batch_size=4", "global_batch_size=16", "seq_len=64",
        "max_norm=2", "steps=5", "shuffle=true", "document_mask=true", "threads=2", "dataset_weights=0.3,0.7",
        "bad_lines=skip", "text_field=content", "bos_id=1", "dtype=bfloat16", "mixed_precision_param=float32", "gradient_dtype=bfloat16", "max_context_length=64",
        "num_tokens_per_microbatch_per_dp_rank=4096", "num_tokens_per_train_step=32768",
        "disable_cuda_graphs=true", "enable_cpu_offload=true", "max_wall_time=1-12:00:00"}},
    {"training", works, {"eos_id=2"}},  // not beside bos_id
    {"training", idle, {"gc_freq=5", "gc_debug=true", "dataloader.num_workers=2",
        "dataloader.persistent_workers=true", "dataloader.pin_memory=true", "dataloader.prefetch_factor=2",
        "dataloader.prefetch_buffer_size=2", "dataloader.infinite=false", "img_size=128",
        "classifier_free_guidance_prob=0.1"}},
    {"training", so, {"mixed_precision_reduce=float32", "dataloader.infinite=true", "deterministic=true"}},
    {"dataloader", works, {"dataset=x", "dataset_path=y", "shuffle=true"}},
    {"dataloader", idle, {"num_workers=2", "persistent_workers=true", "pin_memory=true", "prefetch_factor=2",
        "prefetch_buffer_size=2", "infinite=false", "repeat=false"}},
    {"dataloader", so, {"infinite=true"}},
    {"dataloader", retired, {"seed=1", "dataset_config=x"}},
    {"training", works, {"batch_size=4", "warmup_steps=1", "seed=1",
        "data_parallel_replicate_degree=2", "data_parallel_shard_degree=2", "data_parallel_degree=2",
        "tensor_parallel_degree=2", "enable_loss_parallel=false", "disable_loss_parallel=true",
        "fsdp_reshard_after_forward=always"}},
    {"training", idle, {"compile=true"}},
    {"parallelism", works, {"data_parallel_replicate_degree=2", "data_parallel_shard_degree=2",
        "tensor_parallel_degree=2", "disable_loss_parallel=true", "fsdp_reshard_after_forward=always",
        "pipeline_parallel_degree=2", "module_fqns_per_model_part=a;b",
        "pipeline_parallel_first_stage_less_layers=2", "pipeline_parallel_last_stage_less_layers=2",
        "pipeline_parallel_layers_per_stage=2", "pipeline_parallel_schedule=GPipe",
        "pipeline_parallel_schedule_csv=x", "pipeline_parallel_microbatch_size=2",
        "enable_async_tensor_parallel=true"}},
    {"parallelism", idle, {"enable_fsdp_symm_mem=true",
        "enable_sequence_parallel=false",
        "spmd_backend=partial_dtensor",
        "context_parallel_ptrr_mask_key=x", "expert_parallel_comm_backend=deepep"}},
    {"parallelism", so, {"enable_sequence_parallel=true"}},
    {"parallelism", works, {"context_parallel_degree=2", "context_parallel_load_balancer=none", "context_parallel_load_balancer=ptrr",
        "context_parallel_rotate_method=alltoall", "context_parallel_rotate_method=heads"}},
    {"parallelism", works, {"expert_parallel_degree=2", "expert_tensor_parallel_degree=2",
        "pipeline_parallel_expert_parallel_overlap=false", "expert_parallel_overlap=true",
        "fsdp_prefetch=2", "fsdp_sum_gradients=step"}},
    {"parallelism", retired, {"pipeline_parallel_microbatches=2", "num_pp_microbatches=2", "pipeline_parallel_split_points=x"}},
    {"checkpoint", works, {"enable=true", "enable_checkpoint=true", "walltime_margin=60", "folder=x", "interval=5", "initial_load_path=/x",
        "initial_load_model_only=false", "initial_load_in_hf=true", "initial_load_in_hf_quantized=true", "last_save_model_only=false",
        "model_weights_only=false", "export_dtype=bfloat16", "keep_latest_k=5", "load_step=5",
        "enable_first_step_checkpoint=true", "load_only=true", "create_seed_checkpoint=true", "async_mode=async",
        "async_mode=async_with_pinned_mem", "last_save_in_hf=true", "exclude_from_loading=lr_scheduler", "files=2"}},
    {"checkpoint", refused, {"interval_type=seconds"}},
    {"checkpoint", idle, {"enable_ft_dataloader_checkpoints=true"}},
    {"checkpoint", so, {"interval_type=steps"}},
    {"guards", works, {"loss_spike=skip", "loss_spike=rewind", "spike_window=64", "spike_z_score=5", "spike_patience=3",
        "snapshot_interval=20", "compare_replicas_interval=100", "on_mismatch=rewind"}},
    {"activation_checkpoint", works, {"mode=selective", "mode=full", "mode=memory_budget", "selective_ac_option=op",
        "memory_budget=0.4"}},
    {"activation_checkpoint", idle, {
        "per_op_sac_force_recompute_mm_shapes_by_fqns=x", "force_recompute_mm_shapes_by_fqns=x", "early_stop=true",
        "visualize_memory_budget_pareto=true", "preserve_rng_state=true", "determinism_check=none",
        "debug=true"}},
    {"compile", idle, {"enable=true", "components=loss", "backend=x"}},
    {"compile", works, {"enable_async_tensor_parallel=true"}},
    {"comm", works, {"transport=nccl", "deterministic=false", "max_ctas=16", "init_timeout_seconds=1",
        "train_timeout_seconds=1", "save_traces_folder=x", "save_traces_file_prefix=x"}},
    {"comm", idle, {"trace_buf_size=1", "mode=torchcomms"}},
    {"comm", so, {"mode=default"}},
    {"comm", refused, {"mode=fake_backend", "mode=local_tensor"}},
    {"validation", works, {"enable=true", "freq=5", "steps=5", "dataset=x", "dataset_path=x", "dataset_weights=1,2",
        "bad_lines=skip", "text_field=content", "local_batch_size=4", "seq_len=64", "per_dataset=true",
        "tasks=x", "tasks_limit=2", "prompts=x", "sample_length=8", "sample_temperature=0.5"}},
    {"validator", works, {"enable=true", "freq=5", "steps=5", "dataset=x", "dataset_path=x", "local_batch_size=4",
        "seq_len=64", "dataloader.dataset=x", "dataloader.dataset_path=x"}},
    {"validation", idle, {"dataloader.num_workers=2", "dataloader.persistent_workers=true",
        "dataloader.pin_memory=true", "dataloader.prefetch_factor=2", "dataloader.prefetch_buffer_size=2",
        "dataloader.infinite=true", "dataloader.shuffle=true", "enable_classifier_free_guidance=false",
        "classifier_free_guidance_scale=2", "denoising_steps=4", "all_timesteps=true", "save_img_folder=x",
        "save_img_count=2"}},
    {"validation", so, {"dataloader.infinite=false", "dataloader.shuffle=false"}},
    {"validator", idle, {"dataloader.num_workers=2", "dataloader.persistent_workers=true",
        "dataloader.pin_memory=true", "dataloader.prefetch_factor=2", "dataloader.prefetch_buffer_size=2",
        "dataloader.infinite=true", "dataloader.repeat=true", "dataloader.shuffle=true"}},
    {"validator", retired, {"dataloader.seed=1", "dataloader.dataset_config=x"}},
    {"quantize.linear.float8", of_converter, {"enable_fsdp_float8_all_gather=true",
        "precompute_float8_dynamic_scale_for_fsdp=true", "recipe_name=rowwise", "recipe_name=rowwise_with_gw_hp",
        "filter_fqns=x", "emulate=true"}},
    {"quantize.linear.float8", so, {"recipe_name=none", "recipe_name=tensorwise"}},
    {"quantize.grouped_mm.float8", of_converter, {"fqns=x"}},
    {"quantize.linear.mx", of_converter, {"recipe_name=mxfp8_rceil", "recipe_name=mxfp8_emulated",
        "recipe_name=mxfp8_emulated_rceil", "recipe_name=mxfp8_cublas_rceil", "filter_fqns=x", "fqns=x"}},
    {"quantize.linear.mx", so, {"recipe_name=mxfp8_cublas", "recipe_name=mxfp8"}},
    {"quantize.linear.mx", idle, {"mxfp8_dim1_cast_kernel_choice=cuda"}},
    {"quantize.grouped_mm.mx", of_converter, {"recipe_name=mxfp8_rceil", "recipe_name=mxfp8_emulated", "fqns=x"}},
    {"quantize.grouped_mm.mx", so, {"recipe_name=mxfp8"}},
    {"float8", works, {"enable_float8_linear=true"}},
    {"training", works, {"enable_float8_linear=true", "enable_fp8_linear=true"}},
    {"float8", of_converter, {"enable_fsdp_float8_all_gather=true", "precompute_float8_dynamic_scale_for_fsdp=true",
        "recipe_name=rowwise", "filter_fqns=x", "emulate=true", "moe_fqns_prototype=x"}},
    {"training", of_converter, {"enable_fsdp_float8_all_gather=true",
        "precompute_float8_dynamic_scale_for_fsdp=true"}},
    {"float8", so, {"scaling_type_input=dynamic", "scaling_type_weight=dynamic", "scaling_type_grad_output=dynamic"}},
    {"float8", refused, {"scaling_type_input=delayed", "scaling_type_weight=delayed",
        "scaling_type_grad_output=delayed"}},
    {"training", refused, {"float8_scaling_type_input=delayed", "float8_scaling_type_weight=delayed",
        "float8_scaling_type_grad_output=delayed"}},
    {"float8", idle, {"force_recompute_fp8_weight_in_bwd=true"}},
    {"mx", of_converter, {"recipe_name=mxfp8_rceil", "filter_fqns=x", "fqns=x", "moe_fqns_prototype=x"}},
    {"mx", idle, {"mxfp8_dim1_cast_kernel_choice=cuda", "use_fp8_dim1_cast_triton_kernel=false"}},
    {"fault_tolerance", idle, {"enable=true", "process_group=nccl", "process_group_timeout_ms=1", "replica_id=1",
        "group_size=2", "min_replica_size=2", "sync_steps=1", "num_fragments=2",
        "should_quantize=true", "fragment_sync_delay=1", "fragment_update_alpha=0.5",
        "module_fqns_per_model_fragment=a;b"}},
    {"fault_tolerance", so, {"semi_sync_method=none"}},
    {"fault_tolerance", refused, {"semi_sync_method=local_sgd", "semi_sync_method=diloco"}},
    {"memory_estimation", works, {"enable=true", "enabled=true"}},
    {"memory_estimation", idle, {"disable_fake_mode=true"}},
    {"experimental", idle, {"custom_import=x", "custom_args_module=x", "custom_model_path=x",
        "enable_compiled_autograd=true"}},
    {"experimental", works, {"context_parallel_degree=2", "context_parallel_rotate_method=alltoall",
        "pipeline_parallel_degree=2", "pipeline_parallel_schedule=GPipe", "pipeline_parallel_schedule_csv=x",
        "pipeline_parallel_layers_per_stage=2", "enable_async_tensor_parallel=true"}},
    {"experimental", retired, {"pipeline_parallel_microbatches=2", "pipeline_parallel_split_points=x"}},
    {"override", idle, {"imports=x"}},
    {"loss", works, {"mtp_scale=0.5", "z_loss_weight=1e-4", "loss_fn=MTPLoss", "loss_fn=CrossEntropyLoss",
        "loss_fn=ChunkedLossWrapper"}},
    {"loss", idle, {"num_chunks=4", "global_vocab_size=2048"}},
    {"loss", so, {"num_chunks=8"}},
    {"loss", refused, {"loss_fn=MSELoss"}},
    {"encoder", idle, {"t5_encoder=x", "clip_encoder=x", "autoencoder_path=x", "max_t5_encoding_len=512"}},
    {"inference", idle, {"save_img_folder=x", "prompts_path=x", "local_batch_size=4"}},
};
// clang-format on

// Settings that some options require to be valid.
std::vector<std::string> beside(const std::string& name, const std::string& setting) {
    if (name == "checkpoint.load_step" || name == "checkpoint.create_seed_checkpoint" ||
        name == "checkpoint.exclude_from_loading")
        return {"--checkpoint.enable"};
    if (name == "parallelism.expert_tensor_parallel_degree")
        return {"--parallelism.tensor_parallel_degree=2"};
    if (name == "guards.on_mismatch") return {"--guards.compare_replicas_interval=10"};
    if (name == "training.dataset_weights") return {"--training.dataset_path=a,b"};
    if (name == "validation.dataset_weights" || name == "validation.seq_len" || name == "validator.seq_len")
        return {"--validation.dataset_path=a,b"};
    if (name == "parallelism.expert_parallel_overlap")
        return {"--parallelism.expert_parallel_degree=2", "--training.local_batch_size=2"};
    if (name == "checkpoint.initial_load_in_hf_quantized")
        return {"--checkpoint.initial_load_in_hf", "--model.hf_assets_path=/x"};
    if (setting.starts_with("converters=quantize.grouped_mm."))
        return {"--" + setting.substr(setting.find('=') + 1) + ".fqns=experts"};
    return {};
}

// The arguments with which an option of a converter has an effect.
std::vector<std::string> its_converter(const std::string& name) {
    const bool experts = name.find("grouped_mm") != std::string::npos || name.ends_with("moe_fqns_prototype"),
               mx = name.starts_with("mx.") || name.find(".mx.") != std::string::npos;
    const std::string converter =
        std::string("quantize.") + (experts ? "grouped_mm." : "linear.") + (mx ? "mx" : "float8");
    std::vector<std::string> arguments = {"--model.converters=" + converter};
    if (experts) arguments.push_back("--" + converter + ".fqns=experts");
    return arguments;
}

int64_t count_with(const std::vector<std::string>& lines, const std::string& name) {
    return std::count_if(lines.begin(), lines.end(),
                         [&](const std::string& line) { return line.find(name) != std::string::npos; });
}

}  // namespace

TEST_CASE("every option works, or is reported to have no effect, or is refused by name") {
    const std::string usual = "--training.dataset_path=data.txt";
    std::set<std::string> walked;
    for (const Walk& walk : table) {
        const auto go = [&](const std::string& setting, Outcome outcome, bool with_converter) {
            const std::string prefix = *walk.section ? walk.section + std::string(".") : "";
            const std::string name = prefix + setting.substr(0, setting.find('='));
            walked.insert(name);
            std::vector<std::string> plain = {usual};  // if an option is given twice, the last one counts
            for (const std::string& other : beside(name, setting)) plain.push_back(other);
            if (with_converter)
                for (const std::string& other : its_converter(name)) plain.push_back(other);
            std::vector<std::string> arguments = plain;
            if (name.ends_with("dataset_path") && !name.starts_with("valid"))
                arguments.erase(arguments.begin());
            if (name.ends_with("moe_fqns_prototype") && with_converter) arguments.pop_back();
            arguments.push_back("--" + prefix + setting);
            INFO(prefix + setting);
            std::string error;
            CommandLine parsed;
            try {
                parsed = parse_command_line(arguments);
            } catch (const ConfigError& refusal) {
                error = refusal.what();
            }
            const bool changed =
                test::deck_body(parsed.config) != test::deck_body(parse_command_line(plain).config);
            switch (outcome) {
                case works:
                    CHECK(error == "");
                    CHECK(changed);
                    // the data that the other arguments name by a path wins over its name
                    CHECK(count_with(parsed.notices, "no effect") ==
                          (name == "training.dataset" || name == "dataloader.dataset" ? 1 : 0));
                    break;
                case so:
                    CHECK(error == "");
                    CHECK_FALSE(changed);
                    CHECK(count_with(parsed.notices, name) == 0);
                    break;
                case idle:
                    CHECK(error == "");
                    CHECK(count_with(parsed.notices, "no effect") == 1);
                    CHECK(count_with(parsed.notices, name + " has no effect: ") == 1);
                    break;
                case refused: {
                    CHECK_THAT(error, Contains(name.substr(name.rfind('.') + 1)));
                    CHECK_THAT(error, Contains("not implemented yet") || Contains("Coeus has no such") ||
                                          Contains("train another model") ||
                                          Contains("a language model has none") ||
                                          Contains("are not supported (torchtitan removed them in") ||
                                          Contains("gradients are clipped by their global norm, and "));
                    arguments.push_back("--dry_run");
                    CHECK(count_with(parse_command_line(arguments).refusals, "a real run refuses this") == 1);
                    break;
                }
                case retired: CHECK_THAT(error, Contains(name + " is not an option of Coeus; ")); break;
                case of_converter: FAIL("belongs to a loop of its own");
            }
        };
        for (const std::string& setting : walk.settings) {
            if (walk.outcome != of_converter) {
                go(setting, walk.outcome, false);
                continue;
            }
            go(setting, works, true);
            go(setting, idle, false);
        }
    }
    std::set<std::string> known;
    for (const auto& option : test::listed_options()) known.insert(option.name);
    for (const std::string& name : test::listed_aliases()) known.insert(name);
    CHECK(known.size() > 300);
    CHECK(walked == known);
}

TEST_CASE("an option with a list of choices refuses any other value with the nearest choice") {
    // includes torchtitan's options without a meaning here
    std::set<std::string> with_words = {"model.attn_backend",
                                        "model.tp_gemm_backend",
                                        "model.moe_comm_backend",
                                        "loss.loss_fn",
                                        "parallelism.spmd_backend",
                                        "parallelism.expert_parallel_comm_backend",
                                        "comm.mode",
                                        "activation_checkpoint.determinism_check",
                                        "compile.components",
                                        "checkpoint.interval_type",
                                        "quantize.linear.mx.mxfp8_dim1_cast_kernel_choice",
                                        "quantize.grouped_mm.mx.recipe_name",
                                        "fault_tolerance.process_group",
                                        "fault_tolerance.semi_sync_method"};
    for (const auto& option : test::listed_options()) {
        if (option.words.empty()) continue;
        with_words.erase(option.name);
        INFO(option.name);
        const auto error = [&](const std::string& value) -> std::string {
            try {
                parse_command_line({"--dry_run", "--" + option.name + "=" + value});
            } catch (const ConfigError& refusal) {
                return refusal.what();
            }
            return "no error";
        };
        const std::string start = "command line: " + option.name + " = ";
        CHECK_THAT(error("banana"), Contains(start + "banana: must be one of " + option.words) ||
                                        Contains(start + "banana: can only be " + option.words));
        const std::string first = option.words.substr(0, option.words.find(','));
        CHECK_THAT(error(first + "_"),
                   Contains(start + first + "_: ") && (Contains("did you mean ") || Contains("can only be")));
    }
    CHECK(with_words == std::set<std::string>());
}

TEST_CASE("memory_estimation.enable makes a dry run") {
    const CommandLine parsed = parse_command_line({"--memory_estimation.enable", "--ranks=4"});
    CHECK(parsed.dry_run);
    CHECK(parsed.ranks == 4);
    CHECK(count_with(parsed.notices, "memory_estimation.enable = true: this is a dry run") == 1);
    const CommandLine usual =
        parse_command_line({"--memory_estimation.enable=false", "--training.dataset_path=x"});
    CHECK_FALSE(usual.dry_run);
    CHECK(usual.notices.empty());
    CHECK_THROWS_WITH(parse_command_line({"--ranks=4", "--training.dataset_path=x"}),
                      Contains("--ranks needs --dry_run"));
}

TEST_CASE("batches counted in tokens are batches of sequences") {
    const auto parse = [](std::vector<std::string> arguments) {
        arguments.push_back("--training.dataset_path=x");
        return parse_command_line(arguments).config;
    };
    const Config config =
        parse({"--training.max_context_length=512", "--training.num_tokens_per_microbatch_per_dp_rank=2048",
               "--training.num_tokens_per_train_step=16384"});
    CHECK(config.training.local_batch_size == 4);
    CHECK(config.training.global_batch_size == 32);
    CHECK(config.validation.local_batch_size == 4);
    CHECK(parse({"--training.num_tokens_per_train_step=-1"}).training.global_batch_size == -1);
    CHECK_THROWS_WITH(parse({"--training.num_tokens_per_train_step=5000"}),
                      "training.num_tokens_per_train_step = 5000: must be a multiple of training.seq_len = "
                      "2048; the nearest valid value is 4096");
    CHECK_THROWS_WITH(parse({"--training.num_tokens_per_microbatch_per_dp_rank=7"}),
                      Contains("the nearest valid value is 2048"));
    CHECK_THROWS_WITH(
        parse({"--training.num_tokens_per_microbatch_per_dp_rank=4096", "--training.batch_size=2"}),
        "training.num_tokens_per_microbatch_per_dp_rank = 4096: sets in tokens what "
        "training.local_batch_size sets in sequences; remove one of the two");
}
