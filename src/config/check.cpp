// SPDX-License-Identifier: Apache-2.0
// One function per section that has rules over several options.
#include "check.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/wall_time.hpp"
#include "coeus/config/deck_rules.hpp"
#include "datasets.hpp"
#include "precision_converters.hpp"
#include "value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace coeus::config {

namespace {

constexpr int64_t largest_integer = 1000000000000;
constexpr int64_t most_steps_in_window = 65536;

// Sizes are multiplied with each other and must not overflow, even if each of them is valid. True if all of
// them are small enough.
bool check_magnitudes(Errors& errors, const Config& config) {
    bool all = true;
    Config given = config;
    for (const Option& option : options()) {
        const auto value = option.name == "debug.seed" ? std::nullopt : value_of(option, given);
        if (!value) continue;
        if (const int64_t* number = value->as<int64_t>()) {
            errors.demand(*number <= largest_integer, "{} = {}: must be at most {}", option.name, *number,
                          largest_integer);
            all = all && *number <= largest_integer;
        }
    }
    return all;
}

void check_micro_batch(Errors& errors, const char* section, int64_t sequences, int64_t seq_len) {
    constexpr int64_t most = 0x7fffffff;  // tokens are counted in 32 bits
    errors.demand(double(sequences) * double(seq_len) <= double(most),
                  "{}.local_batch_size x seq_len = {} x {}: must be at most {} tokens; reduce one of the two",
                  section, sequences, seq_len, most);
}

// Checks the path of something that a run writes: if it is relative, it must stay inside job.dump_folder.
void check_place(Errors& errors, const char* option, const std::string& value, const char* usual) {
    const std::filesystem::path place = std::filesystem::path(value).lexically_normal();
    errors.demand(!place.empty() && (place.is_absolute() || *place.begin() != ".."),
                  "{} = \"{}\": must be a path inside job.dump_folder, such as \"{}\", or an absolute path",
                  option, value, usual);
}

void check_job(Errors& errors, const Config::Job& job) {
    errors.demand(!job.dump_folder.empty(),
                  "job.dump_folder = \"\": must name a folder, such as \"./outputs\"");
    if (!job.save_config_file.empty())
        check_place(errors, "job.save_config_file", job.save_config_file, "config.toml");
}

void check_metrics(Errors& errors, const Config::Metrics& metrics) {
    check_place(errors, "metrics.save_tb_folder", metrics.save_tb_folder, "tb");
}

void check_gpu(Errors& errors, const Config& config) {
    errors.demand(config.comm.transport != "nccl" || config.device != "cpu",
                  "comm.transport = \"nccl\": NCCL is for GPUs, but device = \"cpu\"; remove one of the two");
    errors.demand(
        !config.kernels.attention.starts_with("cudnn") || config.device != "cpu",
        "kernels.attention = \"{}\": cuDNN is for GPUs, but device = \"cpu\"; remove one of the two",
        config.kernels.attention);
}

void check_model(Errors& errors, const Config& config) {
    const auto& model = config.model;
    errors.demand(!model.flavor.empty(), "model.flavor = \"\": must name a size, such as \"debugmodel\"");
    const bool weights = config.checkpoint.initial_load_in_hf && config.checkpoint.initial_load_path.empty();
    const std::filesystem::path assets = model.hf_assets_path;
    errors.demand(!(model.flavor == "hf" || weights) || !is_file_patiently(assets),
                  "model.hf_assets_path = \"{}\": is a file, but {} needs a folder with config.json; set it "
                  "to \"{}\", and model.tokenizer_path to the tokenizer's file",
                  model.hf_assets_path, weights ? "checkpoint.initial_load_in_hf" : "model.flavor = \"hf\"",
                  assets.has_parent_path() ? assets.parent_path().string() : ".");
    errors.demand(model.flavor != "hf" || !model.hf_assets_path.empty(),
                  "model.flavor = \"hf\": needs model.hf_assets_path, a folder with config.json");
    errors.demand(!model.ffn_hidden || (!model.ffn_dim_multiplier && !model.multiple_of),
                  "model.ffn_hidden = {}: is the exact hidden width, so neither model.ffn_dim_multiplier nor "
                  "model.multiple_of can be set too; remove them",
                  model.ffn_hidden.value_or(0));
}

void check_optimizer(Errors& errors, const Config& config, const DeckRules& rules) {
    const std::vector<ParamGroupOptions> groups = param_groups(config);
    if (rules.check_optimizer) rules.check_optimizer(config.optimizer, groups);
    const auto check_moments = [&](const OptimizerOptions& options, const std::string& place) {
        errors.demand(options.implementation != "fused_opt_states_bf16" || config.training.dtype != "float64",
                      "{}implementation = \"fused_opt_states_bf16\": moments in bfloat16 need weights in "
                      "float32, but training.dtype = \"float64\"; remove one of the two",
                      place);
    };
    check_moments(config.optimizer, "optimizer.");
    for (size_t i = 0; i < groups.size(); ++i)
        check_moments(groups[i].optimizer,
                      fmt::format("optimizer.param_groups, group {}: optimizer_kwargs.", i + 1));
}

// What adds to gradients, or reads them, must be able to do so in bfloat16.
void check_gradient_dtype(Errors& errors, const Config& config) {
    if (!gradients_in_bf16(config)) return;
    const Config::Training& training = config.training;
    const std::string begin = "training.gradient_dtype = \"bfloat16\": ";
    errors.demand(
        training.dtype != "float64",
        "{}needs a model that is computed in bfloat16, but training.dtype = \"float64\" computes in "
        "float64; set training.gradient_dtype = \"float32\", which means float64 then",
        begin);
    errors.demand(
        training.dtype == "float64" || training.mixed_precision_param == "bfloat16",
        "{}needs a model that is computed in bfloat16, but training.mixed_precision_param = \"{}\"; "
        "set training.mixed_precision_param = \"bfloat16\" or training.gradient_dtype = \"float32\"",
        begin, training.mixed_precision_param);
    for (const std::string& converter : config.model.converters)
        errors.demand(!converter.starts_with("quantize."),
                      "{}layers in 8 bits add to gradients in float32; set training.gradient_dtype = "
                      "\"float32\", or remove \"{}\" from model.converters",
                      begin, converter);
    const auto check_name = [&](const OptimizerOptions& options, const std::string& place) {
        errors.demand(!works_in_gradients(options.name),
                      "{}{} makes its updates in the memory of the gradients, in float32; set "
                      "training.gradient_dtype = \"float32\", or {} = \"AdamW\"",
                      begin, options.name, place);
    };
    check_name(config.optimizer, "optimizer.name");
    const std::vector<ParamGroupOptions> groups = param_groups(config);
    for (size_t i = 0; i < groups.size(); ++i)
        if (!works_in_gradients(config.optimizer.name))
            check_name(groups[i].optimizer,
                       fmt::format("optimizer_name of group {} of optimizer.param_groups", i + 1));
}

void check_blend(Errors& errors, const char* section, const Words& paths,
                 const std::vector<double>& weights) {
    for (const std::string& path : paths)
        errors.demand(!path.empty(), "{}.dataset_path: contains an empty path", section);
    Words given;
    for (const double weight : weights) given.push_back(toml_text({weight}));
    errors.demand(weights.empty() || weights.size() == paths.size(),
                  "{}.dataset_weights = [{}]: {} for {} in {}.dataset_path; give one weight for each path",
                  section, join(given, ", "), counted(int64_t(weights.size()), "weight"),
                  counted(int64_t(paths.size()), "path"), section);
}

void check_training(Errors& errors, const Config& config) {
    const auto& training = config.training;
    check_micro_batch(errors, "training", training.local_batch_size, training.seq_len);
    const auto& validation = config.validation;
    if (validation.local_batch_size != training.local_batch_size || validation.seq_len != training.seq_len)
        check_micro_batch(errors, "validation", validation.local_batch_size, validation.seq_len);
    errors.demand(double(training.global_batch_size) * double(training.seq_len) <= 1e13,
                  "training.global_batch_size x seq_len = {} x {}: must be at most 10^13 tokens",
                  training.global_batch_size, training.seq_len);
    errors.demand(training.threads <= 4096, "training.threads = {}: must be at most 4096", training.threads);
    errors.demand(
        training.global_batch_size < 0 || training.global_batch_size % training.local_batch_size == 0,
        "training.global_batch_size = {}: must be a multiple of training.local_batch_size = {}; the nearest "
        "valid value is {}",
        training.global_batch_size, training.local_batch_size,
        round_up(training.global_batch_size, training.local_batch_size));
    errors.demand(training.dtype != "float64" || config.device != "cuda",
                  "training.dtype = \"float64\": works only on CPUs; set device = \"cpu\", or training.dtype "
                  "= \"float32\"");
    errors.demand(
        training.max_wall_time.empty() || seconds_of_wall_time(training.max_wall_time).value_or(0) > 0,
        "training.max_wall_time = \"{}\": must be a time in Slurm's format: minutes \"90\", \"HH:MM:SS\" or "
        "\"D-HH:MM:SS\", such as \"1-12:00:00\" for a day and a half",
        training.max_wall_time);
    check_blend(errors, "training", training.dataset_path, training.dataset_weights);
    errors.demand(
        !training.bos_id || !training.eos_id,
        "training.bos_id = {}, training.eos_id = {}: a document begins with the one or ends with the "
        "other; give one of them",
        training.bos_id.value_or(0), training.eos_id.value_or(0));
    for (const auto& [name, id] : {std::pair("bos_id", training.bos_id), {"eos_id", training.eos_id}})
        errors.demand(id.value_or(0) <= INT32_MAX, "training.{} = {}: must be below 2^31, as all ids", name,
                      id.value_or(0));
    for (const auto& [name, field] :
         {std::pair("training", &training.text_field), {"validation", &config.validation.text_field}})
        errors.demand(!field->empty(), "{}.text_field: is empty; it is the name of a field, such as \"text\"",
                      name);
}

void check_parallelism(Errors& errors, const Config& config) {
    const auto& p = config.parallelism;
    const bool two_runs = p.context_parallel_load_balancer == "headtail" && p.context_parallel_degree > 1;
    const int64_t pieces = p.tensor_parallel_degree * p.context_parallel_degree * (two_runs ? 2 : 1);
    const auto divides = [&](const char* section, int64_t seq_len) {
        errors.demand(seq_len % pieces == 0,
                      "{}.seq_len = {}: must be a multiple of {}, tensor_parallel_degree x "
                      "context_parallel_degree{}; the "
                      "nearest valid value is {}",
                      section, seq_len, pieces,
                      two_runs ? " x 2 (context_parallel_load_balancer = \"headtail\")" : "",
                      std::max<int64_t>(1, (seq_len + pieces / 2) / pieces) * pieces);
    };
    errors.demand(
        p.context_parallel_load_balancer != "ptrr" || p.context_parallel_degree == 1 ||
            p.context_parallel_rotate_method == "heads",
        "parallelism.context_parallel_load_balancer = \"ptrr\": Coeus moves no tokens to balance a mask; "
        "set parallelism.context_parallel_rotate_method = \"heads\", with which any mask is equal work "
        "for all ranks, or the load balancer \"headtail\"");
    divides("training", config.training.seq_len);
    if (config.validation.enable) divides("validation", config.validation.seq_len);
    errors.demand(
        p.expert_tensor_parallel_degree == 1 || p.expert_tensor_parallel_degree == p.tensor_parallel_degree,
        "parallelism.expert_tensor_parallel_degree = {}: must be 1 or parallelism.tensor_parallel_degree = "
        "{}",
        p.expert_tensor_parallel_degree, p.tensor_parallel_degree);
    errors.demand(p.pipeline_parallel_degree == 1 ||
                      config.training.local_batch_size % p.pipeline_parallel_microbatch_size == 0,
                  "training.local_batch_size = {}: must be a multiple of "
                  "parallelism.pipeline_parallel_microbatch_size = {}; "
                  "the nearest valid value is {}",
                  config.training.local_batch_size, p.pipeline_parallel_microbatch_size,
                  round_up(config.training.local_batch_size, p.pipeline_parallel_microbatch_size));
}

// What two halves of a local batch in turn need.
void check_halves(Errors& errors, const Config& config) {
    const auto& p = config.parallelism;
    if (!p.expert_parallel_overlap) return;
    const std::string begin = "parallelism.expert_parallel_overlap = true: ";
    errors.demand(p.expert_parallel_degree > 1,
                  "{}is for experts that several ranks divide, but parallelism.expert_parallel_degree = 1; "
                  "set a degree of at least 2, or remove the option",
                  begin);
    errors.demand(
        p.pipeline_parallel_degree == 1,
        "{}is for a run without a pipeline, but parallelism.pipeline_parallel_degree = {}; choose "
        "parallelism.pipeline_parallel_schedule = \"DualPipeV\", whose pairs overlap, and remove the option",
        begin, p.pipeline_parallel_degree);
    const int64_t local = config.training.local_batch_size;
    errors.demand(local % 2 == 0,
                  "{}divides a local batch into two halves, but training.local_batch_size = {}; the nearest "
                  "valid value is {}",
                  begin, local, local + 1);
    errors.demand(!config.training.enable_cpu_offload,
                  "{}does not work with training.enable_cpu_offload = true; remove one of the two", begin);
}

// Only one option may determine the number or the content of the stages.
void check_stages(Errors& errors, const Config::Parallelism& p) {
    const Config::Parallelism usual;
    const bool listed = !p.module_fqns_per_model_part.empty();
    errors.demand(
        !p.pipeline_parallel_layers_per_stage || (!listed && p.pipeline_parallel_schedule_csv.empty()),
        "parallelism.pipeline_parallel_layers_per_stage = {}: {}; remove one of the two",
        p.pipeline_parallel_layers_per_stage.value_or(0),
        listed ? "parallelism.module_fqns_per_model_part already lists the stages"
               : "the table of parallelism.pipeline_parallel_schedule_csv already determines the number of "
                 "stages");
    const auto weighs = [&](const char* option, int64_t layers, int64_t usually) {
        errors.demand(
            !listed || layers == usually,
            "parallelism.{} = {}: applies if layers are divided evenly, but "
            "parallelism.module_fqns_per_model_part lists the layers of each stage; remove one of the two",
            option, layers);
    };
    weighs("pipeline_parallel_first_stage_less_layers", p.pipeline_parallel_first_stage_less_layers,
           usual.pipeline_parallel_first_stage_less_layers);
    weighs("pipeline_parallel_last_stage_less_layers", p.pipeline_parallel_last_stage_less_layers,
           usual.pipeline_parallel_last_stage_less_layers);
}

void check_activation_checkpoint(Errors& errors, const Config::ActivationCheckpoint& config) {
    const std::string& option = config.selective_ac_option;
    const bool digits =
        !option.empty() && option.size() <= 9 && option.find_first_not_of("0123456789") == std::string::npos;
    errors.demand(option == "op" || digits,
                  "activation_checkpoint.selective_ac_option = \"{}\": must be \"op\", or a number N such as "
                  "\"2\" for every N-th block",
                  option);
}

void check_checkpoint(Errors& errors, const Config::Checkpoint& checkpoint) {
    check_place(errors, "checkpoint.folder", checkpoint.folder, "checkpoint");
    errors.demand(!checkpoint.create_seed_checkpoint || (checkpoint.enable && !checkpoint.load_only),
                  "checkpoint.create_seed_checkpoint = true: needs checkpoint.enable = true and "
                  "checkpoint.load_only = false, since it saves a checkpoint");
    errors.demand(checkpoint.enable || checkpoint.load_step < 0,
                  "checkpoint.load_step: has no effect with checkpoint.enable = false, since nothing is "
                  "loaded from checkpoint.folder; set checkpoint.enable = true");
    const Words& excluded = checkpoint.exclude_from_loading;
    errors.demand(!excludes(excluded, "optimizer") || excludes(excluded, "lr_scheduler"),
                  "checkpoint.exclude_from_loading: \"optimizer\" resets the moments, which need the warm-up "
                  "of a new schedule; exclude \"lr_scheduler\" too");
    errors.demand(excluded.empty() || checkpoint.enable || !checkpoint.initial_load_path.empty(),
                  "checkpoint.exclude_from_loading: nothing is loaded with checkpoint.enable = false; set "
                  "checkpoint.enable = true or checkpoint.initial_load_path");
    errors.demand(!checkpoint.initial_load_in_hf || checkpoint.initial_load_model_only,
                  "checkpoint.initial_load_in_hf: a Hugging Face folder contains only a model; set "
                  "checkpoint.initial_load_model_only = true");
    errors.demand(
        !checkpoint.initial_load_in_hf_quantized || checkpoint.initial_load_in_hf,
        "checkpoint.initial_load_in_hf_quantized: needs checkpoint.initial_load_in_hf = true, since "
        "only Hugging Face folders are quantized");
    errors.demand(!checkpoint.last_save_in_hf || checkpoint.last_save_model_only,
                  "checkpoint.last_save_in_hf: a Hugging Face folder contains only a model; set "
                  "checkpoint.last_save_model_only = true");
}

void check_guards(Errors& errors, const Config::Guards& guards) {
    errors.demand(guards.on_mismatch == "stop" || guards.compare_replicas_interval > 0,
                  "guards.on_mismatch = \"{}\": replicas are not compared with "
                  "guards.compare_replicas_interval = 0; set it to a number of steps, such as 100",
                  guards.on_mismatch);
    errors.demand(
        guards.spike_window <= most_steps_in_window,
        "guards.spike_window = {}: must be at most {}, the number of steps that a checkpoint can store",
        guards.spike_window, most_steps_in_window);
}

void check_validation(Errors& errors, const Config& config) {
    const auto& validation = config.validation;
    errors.demand(!validation.enable || !validation.dataset_path.empty() ||
                      validation.seq_len == config.training.seq_len,
                  "validation.seq_len = {}: must be training.seq_len = {} if every 100th sequence of the "
                  "training data is held out; to change it, set validation.dataset_path",
                  validation.seq_len, config.training.seq_len);
    check_blend(errors, "validation", validation.dataset_path, validation.dataset_weights);
}

void check_profiling(Errors& errors, const Config::Profiling& profiling) {
    errors.demand(!profiling.enable_profiling ||
                      profiling.profiler_active + profiling.profiler_warmup <= profiling.profile_freq,
                  "profiling.profile_freq = {}: must be at least profiler_active + profiler_warmup = {}",
                  profiling.profile_freq, profiling.profiler_active + profiling.profiler_warmup);
    check_place(errors, "profiling.save_traces_folder", profiling.save_traces_folder, "profile_traces");
    check_place(errors, "profiling.save_memory_snapshot_folder", profiling.save_memory_snapshot_folder,
                "memory_snapshot");
}

void check_comm(Errors& errors, const Config::Comm& comm) {
    const std::string& prefix = comm.save_traces_file_prefix;
    errors.demand(prefix.find('/') == std::string::npos,
                  "comm.save_traces_file_prefix = \"{}\": must not contain \"/\", since names of files in "
                  "comm.save_traces_folder begin with it; an example is \"rank_\"",
                  prefix);
}

bool is_built(const Option& option, const std::string& choice) {
    return option.built.empty() ||
           std::find(option.built.begin(), option.built.end(), choice) != option.built.end();
}

}  // namespace

void check(const Config& config, const DeckRules& rules, Errors& errors) {
    if (!check_magnitudes(errors, config)) return;  // the rules below compute with the sizes
    check_job(errors, config.job);
    check_profiling(errors, config.profiling);
    check_comm(errors, config.comm);
    check_metrics(errors, config.metrics);
    check_gpu(errors, config);
    check_model(errors, config);
    errors.collect([&] { check_optimizer(errors, config, rules); });
    errors.collect([&] { check_gradient_dtype(errors, config); });
    check_converters(errors, config);
    check_training(errors, config);
    check_parallelism(errors, config);
    check_stages(errors, config.parallelism);
    check_halves(errors, config);
    check_activation_checkpoint(errors, config.activation_checkpoint);
    check_checkpoint(errors, config.checkpoint);
    check_guards(errors, config.guards);
    check_validation(errors, config);
}

void check(const Config& config, const DeckRules& rules) {
    Errors errors;
    check(config, rules, errors);
    errors.require_none();
}

namespace {

// "a, b or c"
std::string any_of(const Words& choices) {
    const Words all_but_last(choices.begin(), choices.end() - 1);
    return all_but_last.empty() ? choices.back() : join(all_but_last, ", ") + " or " + choices.back();
}

}  // namespace

Words not_implemented(const Config& config, const DeckRules& rules) {
    Words lines;
    Config given = config;
    for (const Option& option : options_with(rules)) {
        const auto value = value_of(option, given);
        if (!value) continue;
        const std::string* choice = value->as<std::string>();
        if (choice != nullptr && !is_built(option, *choice))
            lines.push_back(fmt::format("{} = {}: is not implemented yet; use {}", option.name,
                                        toml_text(*value), any_of(option.built)));
    }
    return lines;
}

std::string missing_data(const Config& config) {
    if (!config.training.dataset_path.empty()) return "";
    return fmt::format(
        "training.dataset_path: is not given, and training.dataset = \"{}\" was not found in {} (set "
        "$COEUS_DATASETS to search another folder); Coeus downloads nothing. Set training.dataset_path "
        "to your own text or JSON Lines files (also .gz, .zst), a folder of these, or a token file made "
        "with `coeus tokenize INPUT --tokenizer FOLDER --output FILE.h5`",
        config.training.dataset, dataset_folders());
}

}  // namespace coeus::config
