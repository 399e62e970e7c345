// SPDX-License-Identifier: Apache-2.0
// Short names for the command line, and the names of torchtitan's first generation (2024) and of its newest
// one (2026, configured in Python). Each has its name in torchtitan's TOML decks, or says what replaces it in
// Coeus.
#include "option.hpp"

namespace coeus::config {

namespace {

// Adds options that moved to another section and kept the last part of their name.
void add_moved(std::vector<Alias>& all, const std::string& from, const std::string& to,
               std::initializer_list<const char*> names) {
    for (const char* name : names) all.push_back({from + name, to + name});
}

}  // namespace

const std::vector<Alias>& aliases() {
    using Kind = Alias::Kind;
    static const std::vector<Alias> all = [] {
        std::vector<Alias> table = {
            {"quiet", "log.quiet"},
            {"profile", "profiling.kernels"},
            {"job.print_args", "job.print_config"},
            {"metrics.enable_color_printing", "metrics.disable_color_printing", Kind::inverted},
            {"metrics.rank_0_only", "metrics.save_for_all_ranks", Kind::inverted},
            {"training.batch_size", "training.local_batch_size"},
            {"training.warmup_steps", "lr_scheduler.warmup_steps"},
            {"training.compile", "compile.enable"},
            {"training.data_parallel_degree", "parallelism.data_parallel_shard_degree"},
            {"training.enable_loss_parallel", "parallelism.disable_loss_parallel", Kind::inverted},
            {"checkpoint.enable_checkpoint", "checkpoint.enable"},
            {"checkpoint.model_weights_only", "checkpoint.last_save_model_only"},
            {"memory_estimation.enabled", "memory_estimation.enable"},
            {"float8.enable_float8_linear", "model.converters", Kind::converter},
            {"training.enable_float8_linear", "model.converters", Kind::converter},
            {"training.enable_fp8_linear", "model.converters", Kind::converter},
            {"float8.moe_fqns_prototype", "quantize.grouped_mm.float8.fqns"},
            {"mx.moe_fqns_prototype", "quantize.grouped_mm.mx.fqns"},
        };
        add_moved(table, "training.", "debug.", {"seed", "deterministic"});
        add_moved(table, "training.", "parallelism.",
                  {"data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree",
                   "disable_loss_parallel", "fsdp_reshard_after_forward"});
        add_moved(table, "experimental.", "parallelism.",
                  {"enable_async_tensor_parallel", "pipeline_parallel_degree", "pipeline_parallel_schedule",
                   "pipeline_parallel_schedule_csv", "pipeline_parallel_layers_per_stage",
                   "context_parallel_degree", "context_parallel_rotate_method"});
        for (const char* number :
             {"experimental.pipeline_parallel_microbatches", "parallelism.pipeline_parallel_microbatches",
              "parallelism.num_pp_microbatches"})
            table.push_back({number,
                             "set parallelism.pipeline_parallel_microbatch_size, the number of sequences of "
                             "a micro-batch",
                             Kind::retired});
        for (const char* section : {"experimental.", "parallelism."}) {
            table.push_back({section + std::string("pipeline_parallel_split_points"),
                             "set parallelism.module_fqns_per_model_part, the modules of each stage",
                             Kind::retired});
        }
        add_moved(table, "", "job.", {"dump_folder"});
        add_moved(table, "", "model.", {"hf_assets_path"});
        add_moved(table, "debug.", "job.", {"print_config", "save_config_file"});
        add_moved(
            table, "profiler.", "profiling.",
            {"enable_profiling", "save_traces_folder", "profile_freq", "profiler_active", "profiler_warmup",
             "profiler_repeat", "profiler_skip_first", "profiler_skip_first_wait", "enable_memory_snapshot",
             "memory_snapshot_freq", "save_memory_snapshot_folder", "memory_snapshot_max_entries"});
        add_moved(table, "validator.", "validation.",
                  {"enable", "freq", "steps", "dataset", "dataset_path", "local_batch_size", "seq_len"});
        for (const std::string loader : {"dataloader.", "validator.dataloader."}) {
            const std::string section = loader == "dataloader." ? "training." : "validation.";
            add_moved(table, loader, section, {"dataset", "dataset_path"});
            add_moved(table, loader, section + "dataloader.",
                      {"num_workers", "persistent_workers", "pin_memory", "prefetch_factor",
                       "prefetch_buffer_size", "infinite"});
            table.push_back({loader + "repeat", section + "dataloader.infinite"});
            table.push_back(
                {loader + "seed", "set debug.seed, which also seeds the order of the data", Kind::retired});
            table.push_back({loader + "dataset_config", "set " + section + "dataset_path and dataset_weights",
                             Kind::retired});
        }
        add_moved(table, "dataloader.", "training.", {"shuffle"});
        add_moved(table, "validator.dataloader.", "validation.dataloader.", {"shuffle"});
        table.push_back(
            {"tokenizer", "set model.hf_assets_path, the folder of the tokenizer", Kind::retired});
        table.push_back({"module", "set model.name, the model family", Kind::retired});
        table.push_back({"config", "give the deck as the first argument: coeus train DECK", Kind::retired});
        table.push_back({"training.max_context_length", "training.seq_len"});
        table.push_back({"compile.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel"});
        table.push_back({"activation_checkpoint.force_recompute_mm_shapes_by_fqns",
                         "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"});
        add_moved(table, "float8.", "quantize.linear.float8.",
                  {"enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp", "recipe_name",
                   "filter_fqns", "emulate"});
        add_moved(table, "training.", "quantize.linear.float8.",
                  {"enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp"});
        add_moved(table, "mx.", "quantize.linear.mx.",
                  {"recipe_name", "filter_fqns", "fqns", "mxfp8_dim1_cast_kernel_choice"});
        for (const std::string tensor : {"input", "weight", "grad_output"})
            table.push_back({"training.float8_scaling_type_" + tensor, "float8.scaling_type_" + tensor});
        return table;
    }();
    return all;
}

}  // namespace coeus::config
