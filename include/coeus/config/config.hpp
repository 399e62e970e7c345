// SPDX-License-Identifier: Apache-2.0
// A run as its deck describes it: one plain struct per section, names and defaults those of torchtitan's TOML
// decks unless a comment says "ours". What has no meaning in Coeus (compile.*, wandb, ...), or none yet, is
// accepted and has no field. The table of src/config/options_*.cpp ties every field to its option name,
// meaning, choices and status.
#pragma once

#include "coeus/base/types.hpp"
#include "coeus/comm/mesh.hpp"
#include "coeus/file/toml.hpp"
#include "coeus/models/family_names.hpp"
#include "coeus/optim/options.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace coeus {

using Words = std::vector<std::string>;

/// Everything a deck and the command line say. An empty string or list means "not given".
struct Config {
    std::string device = "auto";  ///< ours: cpu, cuda, auto (cuda if built with it and a GPU is visible)

    struct Job {
        std::string config_file;  ///< the deck this came from; empty: command line alone
        std::string dump_folder = "./outputs";
        std::string description = "default job";
        bool print_config = false;
        std::string save_config_file;  ///< also write the effective deck there; empty: no
    } job;

    struct Debug {
        int64_t seed = 0;  ///< of weights, data order and stochastic rounding
    } debug;

    /// Ours: what the terminal shows.
    struct Log {
        std::vector<int64_t> ranks = {0};  ///< LOG_RANK sets it where deck and command line do not
        bool quiet = false;                ///< only warnings and errors
    } log;

    struct Comm {
        std::string transport =
            "auto";  ///< ours: of GPUs' tensors; nccl, staged, auto (nccl where it can be)
        int64_t init_timeout_seconds = 300;   ///< of whatever waits, until the first step is done
        int64_t train_timeout_seconds = 100;  ///< after it
        std::string save_traces_folder = "comm_traces";
        std::string save_traces_file_prefix = "rank_";
    } comm;

    /// Ours: of GPUs.
    struct Kernels {
        bool autotune = true;  ///< search for the fastest of cuBLASLt's algorithms at a shape's first use
        std::string attention = "auto";  ///< own, cudnn, auto (cuDNN where it is found)
    } kernels;

    struct Profiling {
        bool kernels = false;  ///< print the share of each kind of kernel at the end
        bool enable_profiling = false;
        std::string save_traces_folder = "profile_traces";
        int64_t profile_freq = 10;
        int64_t profiler_active = 1;
        int64_t profiler_warmup = 3;
        bool enable_memory_snapshot = false;
        std::string save_memory_snapshot_folder = "memory_snapshot";
        std::optional<int64_t> memory_snapshot_freq;  ///< none: profile_freq
        int64_t memory_snapshot_max_entries = 100000;
    } profiling;

    struct Metrics {
        int64_t log_freq = 10;
        bool enable_tensorboard = false;
        std::string save_tb_folder = "tb";
        bool save_for_all_ranks = false;
        bool disable_color_printing = false;
        int64_t straggler_freq = 100;  ///< ours: steps between looks for slow ranks; 0: none
        double straggler_percent = 5;  ///< ours: of a step, from which on a slow rank is worth a line
    } metrics;

    struct Model {
        std::string name = default_family();
        std::string flavor = "debugmodel";  ///< of the model's table, or "hf": config.json of hf_assets_path
        std::string hf_assets_path = "./tests/assets/tokenizer";
        std::string tokenizer_path;  ///< older name of the tokenizer's place; empty: hf_assets_path
        const std::string& tokenizer() const {
            return tokenizer_path.empty() ? hf_assets_path : tokenizer_path;
        }
        std::string norm_type = "rmsnorm";
        Words converters;
        // ours: each overrides one field of the flavour
        std::optional<int64_t> dim, n_layers, n_heads, n_kv_heads, head_dim, vocab_size;
        std::optional<int64_t> ffn_hidden, multiple_of;
        std::optional<double> ffn_dim_multiplier, rope_theta;
        std::optional<double> rope_scaling_factor;  ///< Llama 3.1's scaling; 1: plain RoPE
        std::optional<double> norm_eps;
        std::optional<bool> tied_embeddings;
        std::optional<int64_t> max_seq_len;
    } model;

    struct Optimizer : OptimizerOptions {
        std::vector<TomlTable> param_groups;  ///< each a table of what it does otherwise
    } optimizer;

    struct LrScheduler {
        int64_t warmup_steps = 200;
        std::optional<int64_t> total_steps;  ///< none: training.steps
        std::optional<double> decay_ratio;   ///< of total_steps; none: all after the warm-up
        std::string decay_type = "linear";   ///< linear, sqrt, cosine
        double min_lr_factor = 0;
    } lr_scheduler;

    struct Training {
        std::string dataset = "c4_test";
        Words dataset_path;  ///< text, JSONL or token files; empty: where `dataset` was found
        std::vector<double> dataset_weights;  ///< ours: of each path; empty: all text joined, by size
        int64_t local_batch_size = 8;
        int64_t global_batch_size = -1;  ///< -1: local_batch_size x data-parallel degree
        int64_t seq_len = 2048;
        /// Batches counted in tokens; what they say is kept in local_batch_size and global_batch_size.
        std::optional<int64_t> num_tokens_per_microbatch_per_dp_rank, num_tokens_per_train_step;
        double max_norm = 1.0;
        int64_t steps = 10000;
        bool enable_cpu_offload = false;
        std::string dtype = "float32";  ///< of weights and moments; float64 computes in float64
        std::string mixed_precision_param = "bfloat16";  ///< of compute
        std::string mixed_precision_reduce = "float32";
        /// ours: permute the windows, differently in each epoch. None: true, or as in the checkpoint that the
        /// run resumes from.
        std::optional<bool> shuffle;
        bool document_mask = false;  ///< ours: attention stays within documents
        int64_t threads = 0;         ///< ours: OpenMP threads per rank; 0: automatic
        bool disable_cuda_graphs = false;
        std::string max_wall_time;  ///< ours: as Slurm's --time; "": no limit beside the job's
    } training;

    struct Parallelism {
        int64_t data_parallel_replicate_degree = 1;
        int64_t data_parallel_shard_degree = -1;  ///< -1: the ranks that the others leave
        std::string fsdp_reshard_after_forward = "default";
        int64_t tensor_parallel_degree = 1;
        bool disable_loss_parallel = false;
        bool enable_async_tensor_parallel = false;
        int64_t pipeline_parallel_degree = 1;
        std::vector<Words> module_fqns_per_model_part;
        int64_t pipeline_parallel_first_stage_less_layers = 1;
        int64_t pipeline_parallel_last_stage_less_layers = 1;
        std::optional<int64_t> pipeline_parallel_layers_per_stage;
        std::string pipeline_parallel_schedule = "1F1B";
        std::string pipeline_parallel_schedule_csv;
        std::string schedule_table;  ///< no option: the text of that file, where it was read with the deck
        int64_t pipeline_parallel_microbatch_size = 1;
        int64_t context_parallel_degree = 1;
        std::string context_parallel_load_balancer = "headtail";
        std::string context_parallel_rotate_method = "allgather";
        int64_t expert_parallel_degree = 1;
        int64_t expert_tensor_parallel_degree = 1;
    } parallelism;

    struct Checkpoint {
        bool enable = false;
        std::string folder = "checkpoint";  ///< inside job.dump_folder, unless absolute
        int64_t interval = 500;
        std::string initial_load_path;
        bool initial_load_model_only = true;
        bool initial_load_in_hf = false;
        bool initial_load_in_hf_quantized = false;
        bool last_save_model_only = true;
        bool last_save_in_hf = false;
        std::string export_dtype = "float32";
        std::string async_mode = "disabled";
        int64_t keep_latest_k = 10;  ///< 0: all
        int64_t files = 1;           ///< over which the arrays of one checkpoint are spread
        int64_t load_step = -1;      ///< -1: the newest
        Words exclude_from_loading;
        bool enable_first_step_checkpoint = false;
        bool load_only = false;
        double walltime_margin = 30;          ///< ours: seconds between the end of saving and the job's
        bool create_seed_checkpoint = false;  ///< save the initial weights as step 0, and end
    } checkpoint;

    /// Ours: against loss spikes and silent corruption.
    struct Guards {
        std::string loss_spike = "off";  ///< off, skip, rewind
        int64_t spike_window = 128;      ///< accepted steps whose mean and deviation count
        double spike_z_score = 6;        ///< deviations above the mean at which a spike begins
        int64_t spike_patience = 5;      ///< skips in a row, or rewinds to one snapshot, before the run ends
        int64_t snapshot_interval = 50;  ///< steps between in-memory snapshots
        int64_t compare_replicas_interval = 0;  ///< steps between comparisons; 0: never
        std::string on_mismatch = "stop";       ///< stop, rewind
    } guards;

    struct ActivationCheckpoint {
        std::string mode = "none";              ///< torchtitan's default is selective
        std::string selective_ac_option = "2";  ///< op, or N: every N-th block whole
        double memory_budget = 0.5;             ///< 0: the frame of full, 1: that of none
    } activation_checkpoint;

    struct Validation {
        bool enable = false;
        std::string dataset = "c4_validation";
        Words dataset_path;                   ///< empty: every 100th window of the training data is held out
        std::vector<double> dataset_weights;  ///< ours: of each path; empty: by size
        int64_t local_batch_size = 8;         ///< training.local_batch_size where not given
        int64_t seq_len = 2048;               ///< training.seq_len where not given
        int64_t freq = 10;
        int64_t steps = -1;  ///< -1: the whole set
    } validation;

    struct MemoryEstimation {
        bool enable = false;  ///< makes the run a dry one
    } memory_estimation;
};

/// What the arguments after `coeus train` ask for.
struct CommandLine {
    Config config;
    bool dry_run = false;              ///< --dry_run: validate and plan, run nothing
    int ranks = 0;                     ///< --ranks N of a dry run; 0: not given
    std::string gpu;                   ///< --gpu NAME of a dry run: the model to plan for; "": not given
    int64_t memory_bytes = 0;          ///< --memory SIZE of a dry run: of each rank; 0: not given
    bool strict = false;               ///< --strict of a dry run: an error if a run would be refused
    std::vector<std::string> notices;  ///< one line each, to be logged by rank 0
    /// By option: where its value was given, "deck.toml:3:1" or "command line". Of rank 0 alone.
    std::map<std::string, std::string> origins;
};

/// Reads arguments and deck, applies the precedence command line > deck > included deck > default, and
/// validates everything that needs no data. `ranks`: of the run, which the mesh must divide; 0: not known,
/// and the mesh is not looked at. Logs nothing. ConfigError, a line for each thing that is wrong, the mesh
/// first: an unknown key (with the nearest known one), a value of the wrong type or out of range, something
/// not built yet (a notice in a dry run), a deck that is absent, not TOML, or includes itself; with the
/// deck's line and column.
CommandLine parse_command_line(const std::vector<std::string>& arguments, int ranks = 0);

/// The same on every rank: rank 0 alone reads decks, looks for data and reads the pipeline's table, and tells
/// the others. Collective.
CommandLine parse_command_line(const std::vector<std::string>& arguments, const Communicator& ranks);

/// The effective deck as TOML: every option that works, and what else was set. Read back it gives an equal
/// Config, but for job.config_file. `origins`: a comment says where a value was given; else it is a default.
std::string deck_text(const Config& config, const std::map<std::string, std::string>& origins = {});

/// This deck with other settings, each "section.option = value" as in a deck, checked as a deck is.
/// ConfigError naming what is wrong.
Config with_settings(const Config& config, const std::vector<std::string>& settings);

/// Options that are not as in the deck of a checkpoint (its text), one line for each thing that they matter
/// to: the order of the data, the learning rate, the run as a whole.
std::vector<std::string> changes_since(const std::string& checkpoint_deck, const Config& config);

/// Whether the run permuted its windows whose checkpoint has this deck. A deck that does not say so comes
/// from a version that did not.
bool shuffle_of_deck(const std::string& checkpoint_deck);

/// For a run whose folder has a finished run, at this step. ConfigError if its deck differs from the
/// checkpoint's in what changes numbers, naming the options, and a pattern of job.dump_folder that separates
/// the two. A changed training.steps is none.
void require_deck_of_finished_run(const std::string& checkpoint_deck, const Config& config, int64_t step);

/// What completions of shells know of an option of a deck.
struct OptionName {
    std::string name;
    bool is_boolean;
    Words choices;  ///< empty: any value
};
/// Those of every option.
std::vector<OptionName> option_names();

/// The text of `coeus help options`.
std::string options_help();
/// The same as doc/decks.md.
std::string options_markdown();

/// optimizer.param_groups, each with what it takes from [optimizer]. ConfigError naming group and key.
std::vector<ParamGroupOptions> param_groups(const Config& config);

/// Of weights, gradients and moments: training.dtype.
Dtype storage_dtype(const Config& config);
/// Of activations and GEMMs: float64 where training.dtype is, else training.mixed_precision_param.
Dtype compute_dtype(const Config& config);
/// A step's update is left out where loss or norm is a spike.
bool watches_loss(const Config::Guards& guards);
/// Something goes back to an in-memory snapshot.
bool rewinds(const Config::Guards& guards);
/// checkpoint.exclude_from_loading (`parts`) names this part.
bool excludes(const Words& parts, const std::string& part);
/// Checkpoints are written while training continues.
bool saves_async(const Config& config);

/// Local batches that one rank sums into a step: global_batch_size / (local_batch_size x dp_degree).
/// ConfigError where that is not a whole number; names the nearest batch size that is.
int64_t gradient_accumulation_steps(const Config& config, int64_t dp_degree);

/// The mesh of [parallelism] for a number of ranks. ConfigError where the degrees, or
/// log.ranks, do not fit it.
MeshShape mesh_shape(const Config& config, int ranks);

/// The value of an option by its name, "model.dim". Nothing: it is not set, is a list, or no option is called
/// so.
std::optional<std::variant<bool, int64_t, double, std::string>> option_value(const Config& config,
                                                                             std::string_view name);

}  // namespace coeus
