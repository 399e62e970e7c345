// SPDX-License-Identifier: Apache-2.0
// A run as its deck describes it: one plain struct per section. Names and defaults are those of torchtitan's
// TOML decks unless a comment says "Coeus only". Options of torchtitan that have no meaning in Coeus
// (compile.*, wandb, ...), or are not implemented yet, are accepted and have no field. The table in
// src/config/options_*.cpp ties every field to its option name, meaning, choices and status.
#pragma once

#include "coeus/base/types.hpp"
#include "coeus/comm/mesh.hpp"
#include "coeus/deck_names/optimizers.hpp"
#include "coeus/file/toml.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace coeus {

using Words = std::vector<std::string>;

/// All settings of deck and command line. An empty string or list means "not given".
struct Config {
    /// Coeus only: cpu, cuda, auto (cuda if Coeus is built with it and a GPU is visible)
    std::string device = "auto";

    struct Job {
        std::string config_file;  ///< path of the deck; empty: command line only
        std::string dump_folder = "./outputs";
        std::string description = "default job";
        bool print_config = false;
        std::string save_config_file;  ///< write the effective deck there too; empty: no
    } job;

    struct Debug {
        int64_t seed = 0;  ///< seeds weights, data order and stochastic rounding
        bool moe_force_load_balance = false;
    } debug;

    /// Coeus only: what the terminal shows.
    struct Log {
        std::vector<int64_t> ranks = {0};  ///< LOG_RANK sets it if deck and command line do not
        bool quiet = false;                ///< only warnings and errors
    } log;

    struct Comm {
        /// Coeus only, for tensors on GPUs: nccl, staged, auto (nccl if possible)
        std::string transport = "auto";
        bool deterministic = true;  ///< Coeus only: NCCL's sums have the same bits in each run
        int64_t max_ctas = 0;       ///< Coeus only: NCCL's, for weights and gradients; 0: NCCL chooses
        int64_t init_timeout_seconds = 300;  ///< for every operation that waits, until the first step is done
        int64_t train_timeout_seconds = 100;  ///< the same after the first step
        std::string save_traces_folder = "comm_traces";
        std::string save_traces_file_prefix = "rank_";
    } comm;

    /// Coeus only: kernels on GPUs.
    struct Kernels {
        /// time cuBLASLt's algorithms when a shape is first used, and keep the fastest
        bool autotune = true;
        bool autotune_recheck = false;          ///< time all that were kept again, not only old ones
        int64_t sm_margin = 0;                  ///< multiprocessors that products leave to NCCL
        bool allow_tf32 = false;                ///< products of operands in float32
        std::string attention = "auto";         ///< own, mma, cudnn, cudnn_forward, auto
        bool deterministic = true;              ///< no kernel of a library adds with atomics
        std::string experts = "auto";           ///< products of experts: mma, wgmma, tma, auto (by the GPU)
        std::optional<bool> experts_in_8_bits;  ///< not set: by the GPU
        bool stream_priorities = true;          ///< kernels of communication begin before waiting blocks
        /// MiB of logits in a chunk. Not set: 8 on a CPU; on a GPU as in the checkpoint from which the run
        /// resumes, or by the memory.
        std::optional<int64_t> logits_chunk_mib;
    } kernels;

    struct Profiling {
        bool kernels = false;  ///< print at the end which share of the time each kind of kernel took
        bool enable_profiling = false;
        std::string save_traces_folder = "profile_traces";
        int64_t profile_freq = 10;
        int64_t profiler_active = 1;
        int64_t profiler_warmup = 3;
        bool enable_memory_snapshot = false;
        std::string save_memory_snapshot_folder = "memory_snapshot";
        std::optional<int64_t> memory_snapshot_freq;  ///< not set: profile_freq
        int64_t memory_snapshot_max_entries = 100000;
    } profiling;

    struct Metrics {
        int64_t log_freq = 10;
        bool enable_tensorboard = false;
        std::string save_tb_folder = "tb";
        bool save_for_all_ranks = false;
        bool disable_color_printing = false;
        int64_t straggler_freq = 100;  ///< Coeus only: steps between searches for slow ranks; 0: never
        double straggler_percent = 5;  ///< Coeus only: report a slow rank that costs so much of a step
    } metrics;

    struct Model {
        std::string name = "llama3";        ///< the family; torchtitan's default
        std::string flavor = "debugmodel";  ///< size within the family; "hf": from hf_assets_path/config.json
        std::string hf_assets_path = "./tests/assets/tokenizer";
        std::string tokenizer_path;  ///< where the tokenizer is, in older decks; empty: hf_assets_path
        const std::string& tokenizer() const {
            return tokenizer_path.empty() ? hf_assets_path : tokenizer_path;
        }
        std::string initial_values = "2026";  ///< Coeus only: which torchtitan's rules
        Words converters;                     ///< what is computed in 8 bits: sections of `quantize`
        bool print_after_conversion = false;
        Words frozen;  ///< Coeus only: regular expressions of the parameters that are not trained
        // Coeus only: each overrides one field of the flavour
        std::optional<int64_t> dim, n_layers, n_heads, n_kv_heads, head_dim, vocab_size;
        std::optional<int64_t> ffn_hidden, multiple_of, sliding_window, attention_chunk;
        std::optional<int64_t> kv_lora_rank, q_lora_rank, qk_rope_head_dim, v_head_dim, num_mtp_layers;
        std::optional<double> ffn_dim_multiplier, rope_theta, partial_rotary_factor;
        std::optional<std::string> rope_scaling_type;
        std::optional<double> rope_scaling_factor;  ///< 1: plain RoPE
        std::optional<int64_t> rope_scaling_original_positions;
        std::optional<double> norm_eps, embedding_scale, residual_scale, attention_scale, logits_scale;
        std::optional<std::string> ffn_activation;  ///< silu, gelu_tanh
        std::optional<std::string> norm_type;
        std::optional<bool> tied_embeddings, parallel_block;
        std::optional<int64_t> max_seq_len;
        struct Moe {
            std::optional<int64_t> num_experts, num_shared_experts, top_k, hidden;
            std::optional<int64_t> num_expert_groups, num_limited_groups;
            std::optional<double> route_scale, load_balance_coeff, sequence_balance_coeff;
            std::optional<bool> route_norm, gate_bias, score_before_experts;
            std::optional<std::string> score_func;  ///< softmax, sigmoid
        } moe;
        std::optional<int64_t> n_dense_layers;
        double non_blocking_capacity_factor = 2;
    } model;

    struct Optimizer : OptimizerOptions {
        std::vector<TomlTable> param_groups;  ///< one table for each group: what differs from [optimizer]
    } optimizer;

    struct LrScheduler {
        int64_t warmup_steps = 200;
        std::optional<int64_t> total_steps;  ///< not set: training.steps
        std::optional<double> decay_ratio;   ///< fraction of total_steps; not set: all after the warm-up
        std::string decay_type = "linear";   ///< linear, sqrt, cosine
        double min_lr_factor = 0;
    } lr_scheduler;

    struct Loss {
        std::optional<std::string> loss_fn;  ///< not set: as the model needs
        double mtp_scale = 0.3;
        double z_loss_weight = 0;  ///< Coeus only: of (log sum exp of the logits)^2; 0: no z-loss
    } loss;

    struct Training {
        std::string dataset = "c4_test";
        Words dataset_path;                   ///< text, JSONL or token files; empty: `dataset` is looked up
        std::vector<double> dataset_weights;  ///< Coeus only: one per path; empty: text joined, by size
        std::string bad_lines = "stop";       ///< Coeus only: or "skip"
        std::string text_field = "text";      ///< Coeus only: field of JSON objects
        std::optional<int64_t> bos_id;        ///< Coeus only: begins documents of files that do not list them
        std::optional<int64_t> eos_id;        ///< Coeus only: ends them
        int64_t local_batch_size = 8;
        int64_t global_batch_size = -1;  ///< -1: local_batch_size x data-parallel degree
        int64_t seq_len = 2048;
        /// The batch sizes in tokens; stored in local_batch_size and global_batch_size after reading.
        std::optional<int64_t> num_tokens_per_microbatch_per_dp_rank, num_tokens_per_train_step;
        double max_norm = 1.0;
        int64_t steps = 10000;
        bool enable_cpu_offload = false;
        std::string dtype = "float32";  ///< of weights and moments; float64: of all computation too
        std::string mixed_precision_param = "bfloat16";  ///< type in which the model is computed
        std::string mixed_precision_reduce = "float32";
        std::string gradient_dtype = "float32";  ///< Coeus only: of the sums of products in gradients
        /// Coeus only: shuffle the sequences, differently in each epoch. Not set: true, or as in the
        /// checkpoint from which the run resumes.
        std::optional<bool> shuffle;
        bool document_mask = false;  ///< Coeus only: attention stays within documents
        int64_t threads = 0;         ///< Coeus only: OpenMP threads per rank; 0: automatic
        bool disable_cuda_graphs = false;
        std::string max_wall_time;  ///< Coeus only: in the format of Slurm's --time; "": the job's limit only
    } training;

    struct Parallelism {
        int64_t data_parallel_replicate_degree = 1;
        int64_t data_parallel_shard_degree = -1;  ///< -1: all ranks that the other degrees leave
        std::string fsdp_reshard_after_forward = "default";
        std::string fsdp_sum_gradients = "default";  ///< Coeus only: default, local_batch, step
        int64_t fsdp_prefetch = 1;                   ///< Coeus only: units gathered ahead
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
        std::string schedule_table;  ///< not an option: the text of that file, if it was read with the deck
        int64_t pipeline_parallel_microbatch_size = 1;
        int64_t context_parallel_degree = 1;
        std::string context_parallel_load_balancer = "headtail";
        std::string context_parallel_rotate_method = "allgather";
        int64_t expert_parallel_degree = 1;
        int64_t expert_tensor_parallel_degree = 1;
        bool pipeline_parallel_expert_parallel_overlap = true;
        bool expert_parallel_overlap = false;
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
        int64_t files = 1;           ///< number of files over which the arrays of one checkpoint are spread
        int64_t load_step = -1;      ///< -1: the newest
        Words exclude_from_loading;
        bool enable_first_step_checkpoint = false;
        bool load_only = false;
        double walltime_margin = 30;  ///< Coeus only: seconds between the end of the last save and of the job
        bool create_seed_checkpoint = false;  ///< save the initial weights as step 0, then exit
    } checkpoint;

    /// Coeus only: guards against loss spikes and silent data corruption.
    struct Guards {
        std::string loss_spike = "off";  ///< off, skip, rewind
        int64_t spike_window = 128;      ///< accepted steps over which mean and deviation are computed
        double spike_z_score = 6;        ///< standard deviations above the mean from which a value is a spike
        int64_t spike_patience = 5;  ///< skips in a row, or rewinds to the same snapshot, before the run ends
        int64_t snapshot_interval = 50;         ///< steps between in-memory snapshots
        int64_t compare_replicas_interval = 0;  ///< steps between comparisons; 0: never
        std::string on_mismatch = "stop";       ///< stop, rewind
    } guards;

    struct ActivationCheckpoint {
        std::string mode = "none";              ///< torchtitan's default is selective
        std::string selective_ac_option = "2";  ///< op, or N: every N-th block completely
        double memory_budget = 0.5;             ///< 0: the activation memory of full, 1: that of none
    } activation_checkpoint;

    struct Validation {
        bool enable = false;
        std::string dataset = "c4_validation";
        Words dataset_path;  ///< empty: every 100th sequence of the training data is held out
        std::vector<double> dataset_weights;  ///< Coeus only: one per path; empty: by size
        std::string bad_lines = "stop";       ///< Coeus only: or "skip"
        std::string text_field = "text";      ///< Coeus only: field of JSON objects
        int64_t local_batch_size = 8;         ///< training.local_batch_size if not given
        int64_t seq_len = 2048;               ///< training.seq_len if not given
        int64_t freq = 10;
        int64_t steps = -1;             ///< -1: the whole set
        bool per_dataset = false;       ///< Coeus only: the loss of each source too
        Words tasks;                    ///< Coeus only: files of tasks to score
        int64_t tasks_limit = 0;        ///< Coeus only: of the lines of each file; 0: all
        std::string prompts;            ///< Coeus only: file of prompts to continue; empty: none
        int64_t sample_length = 64;     ///< Coeus only: most tokens of such a text
        double sample_temperature = 0;  ///< Coeus only: 0: the most likely token
    } validation;

    /// Computing in 8 bits: the options of each of model.converters.
    struct Quantize {
        struct Linear {
            struct Float8 {
                std::string recipe_name = "tensorwise";
                bool enable_fsdp_float8_all_gather = false;
                bool precompute_float8_dynamic_scale_for_fsdp = false;
                Words filter_fqns;
                bool emulate = false;
            } float8;
            struct Mx {
                std::string recipe_name = "mxfp8_cublas";
                Words filter_fqns = {"output"}, fqns;
            } mx;
        } linear;
        struct GroupedMm {
            struct Float8 {
                Words fqns;
            } float8;
            struct Mx {
                std::string recipe_name = "mxfp8";
                Words fqns;
            } mx;
        } grouped_mm;
    } quantize;

    struct MemoryEstimation {
        bool enable = false;  ///< makes this a dry run
    } memory_estimation;
};

struct DeckRules;  // deck_rules.hpp

/// The arguments of `coeus train`, read.
struct CommandLine {
    Config config;
    bool dry_run = false;      ///< --dry_run: only check the deck and plan the memory
    int ranks = 0;             ///< --ranks N, for a dry run; 0: not given
    std::string gpu;           ///< --gpu NAME, for a dry run: the GPU model to plan for; "": not given
    int64_t memory_bytes = 0;  ///< --memory SIZE, for a dry run: memory of each rank; 0: not given
    bool strict = false;       ///< --strict, for a dry run: it fails if a real run would be refused
    std::vector<std::string> notices;  ///< lines for rank 0 to log
    /// In a dry run: why a real run would be refused. A real run throws a ConfigError instead.
    std::vector<std::string> refusals;
    /// In a dry run: data that the deck names and this host does not have. A real run throws a ConfigError.
    std::vector<std::string> absent;
    /// Where the value of each option was given: "deck.toml:3:1" or "command line". Only on rank 0.
    std::map<std::string, std::string> origins;
};

/// Reads arguments and deck with the precedence command line > deck > included deck > default, and checks
/// everything that needs no data, also by `rules` (deck/command_line.hpp has those of this program). Logs
/// nothing. `ranks`: the number of ranks, which must fit the mesh; 0: not known, the mesh is not checked. A
/// dry run on one rank without --ranks takes fewest_ranks(). ConfigError, with one line for each problem, the
/// mesh first: an unknown key (with the nearest known one), a value of the wrong type or out of range,
/// something not implemented yet (only a notice in a dry run), a deck that does not exist, is not TOML or
/// includes itself. Each names line and column of the deck.
CommandLine parse_by_rules(const std::vector<std::string>& arguments, const DeckRules& rules, int ranks = 0);

/// The same on every rank. Collective: only rank 0 reads decks, looks for datasets and reads the schedule
/// table of the pipeline, and broadcasts the result.
CommandLine parse_by_rules(const std::vector<std::string>& arguments, const DeckRules& rules,
                           const Communicator& ranks);

/// The effective deck as TOML: every option that has a field. Reading it back gives an equal Config, except
/// for job.config_file. With `origins`, a comment after each value that is not a default says where it was
/// given.
std::string deck_text(const Config& config, const std::map<std::string, std::string>& origins = {});

/// The config with some settings changed, each given as "section.option = value". The result is checked as a
/// deck is. ConfigError naming what is wrong.
Config with_settings(const Config& config, const DeckRules& rules, const std::vector<std::string>& settings);

/// Options that differ from a checkpoint's deck (given as text): one line for those that change the order of
/// the data, one for the learning rate, one for the rest.
std::vector<std::string> changes_since(const std::string& checkpoint_deck, const Config& config);

/// Whether the run that wrote a checkpoint with this deck shuffled its sequences. A deck without the option
/// comes from a version that did not shuffle.
bool shuffle_of_deck(const std::string& checkpoint_deck);

/// kernels.logits_chunk_mib of the run on a GPU that wrote a checkpoint with this deck. A deck of 0.2 or
/// earlier, which does not have the options of `kernels`, means 256. None if another deck does not have it.
std::optional<int64_t> logits_chunk_of_deck(const std::string& checkpoint_deck);

/// For a run whose folder contains a run that finished at this step. ConfigError if the deck differs from the
/// checkpoint's in an option that changes the results; it names these options and a pattern for
/// job.dump_folder that separates the two runs. A changed training.steps does not count.
void require_deck_of_finished_run(const std::string& checkpoint_deck, const Config& config, int64_t step);

/// An option of a deck, as the completion of a shell needs it.
struct OptionName {
    std::string name;
    bool is_boolean;
    Words choices;  ///< empty: any value
};
/// All options.
std::vector<OptionName> option_names(const DeckRules& rules);

/// The text of `coeus help options`. With `words`, only the options whose names contain one of them.
/// ConfigError for a word that no name contains, with the nearest name.
std::string options_help(const DeckRules& rules, const Words& words = {});
/// The text of doc/decks.md.
std::string options_markdown(const DeckRules& rules);

/// optimizer.param_groups, completed with the values of [optimizer]. ConfigError naming group and key.
std::vector<ParamGroupOptions> param_groups(const Config& config);

/// Type of weights, gradients and moments: training.dtype.
Dtype storage_dtype(const Config& config);
/// True if gradients are kept in bfloat16 (StateTypes::gradients_in_bf16).
bool gradients_in_bf16(const Config& config);
/// Type of activations and GEMMs: float64 if training.dtype is, else training.mixed_precision_param.
Dtype compute_dtype(const Config& config);
/// Whether model.converters contains this one, such as "quantize.linear.float8".
bool uses_converter(const Config& config, const std::string& converter);
/// Whether loss and gradient norm are watched for spikes.
bool watches_loss(const Config::Guards& guards);
/// Whether a guard can rewind the run to an in-memory snapshot.
bool rewinds(const Config::Guards& guards);
/// Whether `parts` (checkpoint.exclude_from_loading) contains `part`.
bool excludes(const Words& parts, const std::string& part);
/// Whether checkpoints are written while training continues.
bool saves_async(const Config& config);

/// Number of local batches that one rank sums in a step: global_batch_size / (local_batch_size x dp_degree).
/// ConfigError if that is not a whole number; it names the nearest valid global batch size.
int64_t gradient_accumulation_steps(const Config& config, int64_t dp_degree);

/// The mesh of [parallelism] for a number of ranks. ConfigError if the degrees or log.ranks do not fit that
/// number.
MeshShape mesh_shape(const Config& config, int ranks);

/// The smallest number of ranks for which mesh_shape() has a mesh. If the sharding degree is not fixed,
/// experts may need more than one shard. Degrees that no number of ranks can have give the largest int.
int fewest_ranks(const Config::Parallelism& degrees);

/// The value of an option, looked up by its name, such as "model.dim". Nothing if it is not set, is a list,
/// or if there is no such option.
std::optional<std::variant<bool, int64_t, double, std::string>> option_value(const Config& config,
                                                                             std::string_view name);

}  // namespace coeus
