// SPDX-License-Identifier: Apache-2.0
// Every option name of torchtitan is known: the names in the tables of the reference (section 1 of
// torchtitan.md), and those in its prose.
#include "support/catch.hpp"
#include "support/support.hpp"
#include "unit/config/listed_options.hpp"

#include <set>
#include <sstream>

using namespace coeus;
using namespace coeus::test;

namespace {

std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(" `"), last = text.find_last_not_of(" `");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// "a / b" -> a, b; "group.{a 0, b none}" -> group.a, group.b; a name with a star stands for several and is
// left out
std::vector<std::string> names_in(const std::string& cell) {
    std::vector<std::string> names;
    if (const size_t brace = cell.find(".{"); brace != std::string::npos) {
        std::istringstream members(cell.substr(brace + 2, cell.find('}') - brace - 2));
        for (std::string member; std::getline(members, member, ',');) {
            const std::string word = trimmed(member);
            names.push_back(trimmed(cell.substr(0, brace)) + "." + word.substr(0, word.find(' ')));
        }
        return names;
    }
    std::string plain = cell;
    for (char& c : plain)
        if (c == '/') c = ',';
    std::istringstream parts(plain);
    for (std::string part; std::getline(parts, part, ',');)
        if (part.find('*') == std::string::npos) names.push_back(trimmed(part));
    return names;
}

// Names in the rows of all tables whose first column is "option", below headings such as "### 1.2 [debug]
// (both)". "job.dump_folder (HEAD: `dump_folder`)" is two names.
std::set<std::string> names_of_tables(const std::string& reference) {
    std::set<std::string> names;
    std::string section;
    bool in_chapter = false, in_table = false;
    for (const std::string& line : lines_of(reference)) {
        if (line.starts_with("## ")) in_chapter = line.starts_with("## 1. ");
        if (!in_chapter) continue;
        if (line.starts_with("### "))
            section = line.find('[') == std::string::npos
                          ? ""
                          : line.substr(line.find('[') + 1, line.find(']') - line.find('[') - 1) + ".";
        if (line.starts_with("| option |")) in_table = true;
        if (!line.starts_with("| ")) in_table = in_table && line.starts_with("|-");
        if (!in_table || !line.starts_with("| ") || line.starts_with("| option |")) continue;
        const std::string cell = line.substr(2, line.find(" | ") - 2);
        const size_t bracket = cell.find(" (");
        if (const size_t tick = cell.find('`'); bracket != std::string::npos && tick != std::string::npos)
            names.insert(cell.substr(tick + 1, cell.find('`', tick + 1) - tick - 1));
        for (const std::string& name : names_in(cell.substr(0, bracket)))
            names.insert(name.starts_with(section) || name.starts_with("quantize.") ? name : section + name);
    }
    return names;
}

// Options in the reference's prose: sections, then their options.
const std::vector<std::pair<const char*, std::vector<const char*>>> prose = {
    {"", {"module", "config", "tokenizer", "dump_folder", "hf_assets_path"}},
    {"profiler",
     {"enable_profiling", "save_traces_folder", "profile_freq", "profiler_active", "profiler_warmup",
      "profiler_repeat", "profiler_skip_first", "profiler_skip_first_wait", "enable_memory_snapshot",
      "memory_snapshot_freq", "save_memory_snapshot_folder", "memory_snapshot_max_entries"}},
    {"model",
     {"attn_backend", "tp_gemm_backend", "moe_comm_backend", "non_blocking_capacity_factor",
      "num_mtp_layers"}},
    {"optimizer",
     {"name", "lr", "beta1", "beta2", "eps", "weight_decay", "implementation", "early_step_in_backward",
      "param_groups", "optimizer_factory_kwargs_by_name"}},
    {"lr_scheduler", {"warmup_steps", "total_steps", "decay_ratio", "decay_type", "min_lr_factor"}},
    {"dataloader",
     {"dataset", "dataset_path", "num_workers", "persistent_workers", "pin_memory", "prefetch_factor", "seed",
      "shuffle", "repeat", "infinite"}},
    {"training",
     {"batch_size", "warmup_steps", "compile", "tensor_parallel_degree", "data_parallel_degree",
      "data_parallel_replicate_degree", "data_parallel_shard_degree"}},
    {"checkpoint", {"enable_checkpoint", "interval_type", "model_weights_only"}},
    {"activation_checkpoint",
     {"mode", "selective_ac_option", "per_op_sac_force_recompute_mm_shapes_by_fqns",
      "force_recompute_mm_shapes_by_fqns", "early_stop", "memory_budget", "visualize_memory_budget_pareto",
      "preserve_rng_state", "determinism_check", "debug"}},
    {"compile", {"enable", "components", "backend", "enable_async_tensor_parallel"}},
    {"comm",
     {"init_timeout_seconds", "train_timeout_seconds", "trace_buf_size", "save_traces_folder",
      "save_traces_file_prefix", "mode"}},
    {"validation",
     {"enable", "freq", "steps", "dataset", "dataset_path", "local_batch_size", "seq_len",
      "dataloader.num_workers", "dataloader.persistent_workers", "dataloader.pin_memory",
      "dataloader.prefetch_factor"}},
    {"validator",
     {"enable", "freq", "steps", "dataloader.dataset", "dataloader.dataset_path", "dataloader.num_workers",
      "dataloader.persistent_workers", "dataloader.pin_memory", "dataloader.prefetch_factor",
      "dataloader.seed", "dataloader.shuffle", "dataloader.repeat", "dataloader.infinite"}},
    {"fault_tolerance",
     {"enable", "process_group", "process_group_timeout_ms", "replica_id", "group_size", "min_replica_size",
      "semi_sync_method", "sync_steps", "num_fragments", "should_quantize", "fragment_sync_delay",
      "fragment_update_alpha", "module_fqns_per_model_fragment"}},
    {"memory_estimation", {"enable", "disable_fake_mode"}},
    {"experimental", {"custom_import", "custom_args_module", "pipeline_parallel_degree"}},
    {"override", {"imports"}},
    {"loss", {"global_vocab_size", "num_chunks", "loss_fn", "mtp_scale"}},
};

std::set<std::string> known_names() {
    std::set<std::string> known;
    for (const ListedOption& option : listed_options()) known.insert(option.name);
    for (const std::string& name : listed_aliases()) known.insert(name);
    return known;
}

std::set<std::string> unknown_of(const std::set<std::string>& names) {
    const std::set<std::string> known = known_names();
    std::set<std::string> unknown;
    for (const std::string& name : names)
        if (!known.contains(name)) unknown.insert(name);
    return unknown;
}

}  // namespace

TEST_CASE("every option in the tables of torchtitan's reference is known") {
    const std::filesystem::path file = shared("reference/torchtitan.md");
    if (file.empty()) return;
    const std::set<std::string> names = names_of_tables(read_file(file));
    CHECK(names.size() >= 126);  // the current count: a change of the tables' form must not go unnoticed
    for (const char* one : {"job.dump_folder", "dump_folder", "debug.save_config_file", "debug.seed",
                            "profiling.profiler_skip_first", "training.dataloader.prefetch_factor",
                            "parallelism.pipeline_parallel_split_points", "checkpoint.load_only",
                            "quantize.grouped_mm.mx.fqns"})
        CHECK(names.contains(one));
    CHECK(unknown_of(names) == std::set<std::string>());
}

TEST_CASE("every option in the prose of torchtitan's reference is known") {
    std::set<std::string> names;
    for (const auto& [section, options] : prose)
        for (const char* option : options)
            names.insert(*section ? section + std::string(".") + option : option);
    CHECK(unknown_of(names) == std::set<std::string>());
}
