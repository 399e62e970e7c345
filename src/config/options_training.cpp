// SPDX-License-Identifier: Apache-2.0
// Options of training, validation, checkpoints and guards.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* by_name =
    "Name of a dataset, used if `dataset_path` is not given: a file or folder with that name in "
    "`$COEUS_DATASETS`, `./datasets` or `./tests/assets`. Nothing is downloaded";
constexpr const char* without_usable_text =
    "What happens to a line of JSON Lines, or an element of a JSON array, that is not valid or has no usable "
    "text. "
    "`stop`: the run ends with an error that names it. `skip`: it is left out and counted";
constexpr const char* field_of_text = "Field of JSON objects that contains the text";
constexpr const char* weights_of_paths = "Weight of each path in the blend. The weights need not add up to 1";

std::vector<Option> guard_options() {
    return {
        works(COEUS_FIELD(guards.loss_spike), to_run,
              "Reaction to a step whose loss or gradient norm is far above that of the steps before. `off`: "
              "none. `skip`: skip its update. `rewind`: rewind to the last in-memory snapshot and skip all "
              "samples since then. Checkpoints contain the decisions, so that a resumed run makes the same "
              "ones")
            .one_of({"off", "skip", "rewind"}),
        works(COEUS_FIELD(guards.spike_window), to_run,
              "Number of accepted steps over which mean and standard deviation are computed. The guard "
              "starts when there have been that many steps")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.spike_z_score), to_run,
              "A value that is this many standard deviations above the mean is a spike. The deviation is "
              "taken as at least 1% of the mean")
            .obeys(positive),
        works(COEUS_FIELD(guards.spike_patience), to_run,
              "After this many skipped updates in a row, or rewinds to the same snapshot, the next spike "
              "ends the run with exit code 4")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.snapshot_interval), to_run,
              "Number of steps between in-memory snapshots, if a guard rewinds to them. A snapshot is also "
              "taken with each checkpoint")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.compare_replicas_interval), to_run,
              "Number of steps after which ranks with the same weights, moments and gradients compare them. "
              "They also compare them before each checkpoint and snapshot. 0: never")
            .obeys(at_least_0),
        works(COEUS_FIELD(guards.on_mismatch), to_run,
              "Reaction if replicas differ. `stop`: the run ends with exit code 3 and can resume from its "
              "last checkpoint. `rewind`: it rewinds to the last in-memory snapshot and repeats the steps "
              "since then")
            .one_of({"stop", "rewind"}),
    };
}

}  // namespace

std::vector<Option> training_options() {
    std::vector<Option> table = {
        works(COEUS_FIELD(training.dataset), to_nothing, by_name),
        works(COEUS_FIELD(training.dataset_path), to_samples,
              "Paths of the data: text, JSON or JSON Lines files (also .gz and .zst), folders of these, or "
              "token files, also those of Megatron-LM, llm.c and NumPy"),
        works(COEUS_FIELD(training.dataset_weights), to_samples, weights_of_paths)
            .obeys(positive)
            .defaults_to("all text is joined, and token files are weighted by their size"),
        works(COEUS_FIELD(training.bad_lines), to_samples, without_usable_text).one_of({"stop", "skip"}),
        works(COEUS_FIELD(training.text_field), to_samples, field_of_text),
        works(COEUS_FIELD(training.bos_id), to_samples,
              "Id with which documents begin in token files that do not list their documents (llm.c, NumPy), "
              "also for validation")
            .obeys(at_least_0)
            .defaults_to("BOS or EOS of the tokenizer"),
        works(COEUS_FIELD(training.eos_id), to_samples,
              "The same for the id with which documents end. Only one of the two may be given")
            .obeys(at_least_0)
            .defaults_to("BOS or EOS of the tokenizer"),
        works(COEUS_FIELD(training.local_batch_size), to_nothing,
              "Number of sequences that a rank processes at a time")
            .obeys(at_least_1),
        works(COEUS_FIELD(training.global_batch_size), to_nothing,
              "Number of sequences of a step, over all ranks. If it is larger than one local batch per rank, "
              "the gradients of several are accumulated. -1: one local batch per rank")
            .obeys(all_or_some),
        works(COEUS_FIELD(training.seq_len), to_samples, "Length of a sequence, in tokens").obeys(at_least_1),
        works(COEUS_FIELD(training.num_tokens_per_microbatch_per_dp_rank), to_run,
              "`training.local_batch_size` in tokens: a multiple of `training.seq_len`")
            .obeys(at_least_1)
            .defaults_to("`training.local_batch_size` x `training.seq_len`"),
        works(COEUS_FIELD(training.num_tokens_per_train_step), to_run,
              "`training.global_batch_size` in tokens: a multiple of `training.seq_len`. -1: one local batch "
              "per rank")
            .obeys(all_or_some)
            .defaults_to("`training.global_batch_size` x `training.seq_len`"),
        works(COEUS_FIELD(training.max_norm), to_run,
              "Gradients are clipped to this global norm. `inf`: they are not clipped")
            .obeys(positive_or_infinite),
        works(COEUS_FIELD(training.steps), to_learning_rate, "Number of optimizer steps of the run")
            .obeys(at_least_1),
        works(COEUS_FIELD(training.enable_cpu_offload), to_nothing,
              "On GPUs: keep in host memory the optimizer moments, the master weights that no layer reads, "
              "and the inputs of recomputed blocks"),
        works(COEUS_FIELD(training.dtype), to_run,
              "Type of weights and moments. `bfloat16`: updates are rounded stochastically. `float64`: the "
              "model is computed in float64 too")
            .one_of({"float32", "bfloat16", "float64"}),
        works(COEUS_FIELD(training.mixed_precision_param), to_run, "Type in which the model is computed")
            .one_of({"bfloat16", "float32"}),
        works(COEUS_FIELD(training.mixed_precision_reduce), to_run,
              "Type in which gradients are summed over ranks")
            .one_of({"float32"}),
        works(
            COEUS_FIELD(training.gradient_dtype), to_run,
            "Type of the gradients of matrices on a rank. `bfloat16`: half the memory, but each product that "
            "is added to a gradient rounds it")
            .one_of({"float32", "bfloat16"}),
        works(COEUS_FIELD(training.shuffle), to_samples, "Shuffle the sequences, differently in each epoch")
            .defaults_to("`true`; a resumed run keeps its checkpoint's order"),
        works(COEUS_FIELD(training.document_mask), to_run,
              "Mask attention so that it stays within documents"),
        works(COEUS_FIELD(training.threads), to_nothing,
              "Number of threads per rank. 0: the ranks of a node share its cores")
            .obeys(at_least_0),
        works(COEUS_FIELD(training.disable_cuda_graphs), to_run,
              "Launch the kernels of a step one by one on a GPU, instead of as CUDA graphs. The results are "
              "bit-identical"),
        works(COEUS_FIELD(training.max_wall_time), to_run,
              "Save a checkpoint and end with exit code 75 before the process has run for this long. The "
              "format is Slurm's: `\"30\"` (minutes), `\"23:30:00\"`, `\"1-12:00:00\"`. The end of a Slurm "
              "job counts too"),

        works(COEUS_FIELD(validation.enable), to_samples,
              "Measure the loss on data that is not used for training"),
        works(COEUS_FIELD(validation.dataset), to_nothing, by_name),
        works(COEUS_FIELD(validation.dataset_path), to_samples,
              "Paths of the data. Empty: every 100th sequence of `training.dataset_path` is held out for "
              "validation"),
        works(COEUS_FIELD(validation.dataset_weights), to_samples, weights_of_paths)
            .obeys(positive)
            .defaults_to("paths are weighted by their size"),
        works(COEUS_FIELD(validation.bad_lines), to_samples, without_usable_text).one_of({"stop", "skip"}),
        works(COEUS_FIELD(validation.text_field), to_samples, field_of_text),
        works(COEUS_FIELD(validation.local_batch_size), to_nothing,
              "Number of sequences that a rank processes at a time")
            .obeys(at_least_1)
            .defaults_to("`training.local_batch_size`"),
        works(COEUS_FIELD(validation.seq_len), to_nothing, "Length of a sequence, in tokens")
            .obeys(at_least_1)
            .defaults_to("`training.seq_len`"),
        works(COEUS_FIELD(validation.freq), to_nothing,
              "Validate at step 1 and at every step whose number is a multiple of this")
            .obeys(at_least_1),
        works(COEUS_FIELD(validation.steps), to_nothing,
              "Number of batches of a validation. -1: all of the data")
            .obeys(all_or_some),
        works(
            COEUS_FIELD(validation.per_dataset), to_samples,
            "Also report the loss of each path of `validation.dataset_path` (if it is empty: of each source "
            "of the training data). Each path of text is then a source of its own"),
        works(COEUS_FIELD(validation.tasks), to_nothing,
              "Files of tasks that are scored at each validation, in the form that `coeus evaluate` reads"),
        works(COEUS_FIELD(validation.tasks_limit), to_nothing,
              "Number of lines of each of these files that are scored. 0: all")
            .obeys(at_least_0),
        works(COEUS_FIELD(validation.prompts), to_nothing,
              "File of prompts that the model continues at each validation, in the form that `coeus generate "
              "--prompts` reads. The texts are written to the log and to `samples.jsonl`")
            .defaults_to("no texts"),
        works(COEUS_FIELD(validation.sample_length), to_nothing,
              "Maximum number of tokens of each of these texts")
            .obeys(at_least_1),
        works(COEUS_FIELD(validation.sample_temperature), to_nothing,
              "Temperature at which their tokens are drawn. 0: always the most likely token")
            .obeys(at_least_0),

        works(COEUS_FIELD(checkpoint.enable), to_nothing,
              "Save checkpoints, and resume from the newest one at the start"),
        works(COEUS_FIELD(checkpoint.folder), to_nothing,
              "Folder of the checkpoints (inside `job.dump_folder` unless absolute)"),
        works(COEUS_FIELD(checkpoint.interval), to_nothing, "Number of steps between checkpoints")
            .obeys(at_least_1),
        works(COEUS_FIELD(checkpoint.initial_load_path), to_nothing,
              "Start from this checkpoint or Hugging Face folder if the run has no checkpoint of its own"),
        works(COEUS_FIELD(checkpoint.initial_load_model_only), to_nothing,
              "Load only the weights from `checkpoint.initial_load_path`, not the optimizer state and the "
              "step"),
        works(COEUS_FIELD(checkpoint.initial_load_in_hf), to_nothing,
              "`checkpoint.initial_load_path` is a Hugging Face folder. If that path is not given, the "
              "weights are loaded from `model.hf_assets_path`"),
        works(COEUS_FIELD(checkpoint.initial_load_in_hf_quantized), to_nothing,
              "The weights of that folder are quantized (MXFP4, or FP8 in blocks) and are decoded while they "
              "are loaded. A folder that is quantized is refused without this option, and one that is not "
              "with it"),
        works(COEUS_FIELD(checkpoint.last_save_model_only), to_nothing,
              "After the last step, also write a file of only the weights, in `checkpoint.export_dtype`"),
        works(COEUS_FIELD(checkpoint.last_save_in_hf), to_nothing,
              "Write the weights after the last step as a Hugging Face folder"),
        works(COEUS_FIELD(checkpoint.export_dtype), to_nothing,
              "Type of the weights that are written after the last step")
            .one_of({"float32", "bfloat16", "float16"}),
        works(COEUS_FIELD(checkpoint.async_mode), to_nothing,
              "Asynchronous checkpoints: they are written while training continues")
            .one_of({"disabled", "async", "async_with_pinned_mem"}),
        works(COEUS_FIELD(checkpoint.keep_latest_k), to_nothing,
              "Number of newest checkpoints that are kept. 0: all")
            .obeys(all_or_two),
        works(COEUS_FIELD(checkpoint.files), to_nothing,
              "Number of files over which a checkpoint is spread, for file systems on which one file is "
              "slow. `step-*.h5` links to them")
            .obeys(at_most_256),
        works(COEUS_FIELD(checkpoint.load_step), to_nothing,
              "Resume from the checkpoint of this step. -1: from the newest")
            .obeys(step_or_newest),
        works(COEUS_FIELD(checkpoint.exclude_from_loading), to_nothing,
              "Parts of a checkpoint that are not loaded but reset, once. Later restarts of the same run "
              "load them again")
            .one_of({"optimizer", "lr_scheduler", "dataloader", "train_state"}),
        works(COEUS_FIELD(checkpoint.enable_first_step_checkpoint), to_nothing,
              "Also save a checkpoint after step 1"),
        works(COEUS_FIELD(checkpoint.load_only), to_nothing, "Load a checkpoint, but never save one"),
        works(
            COEUS_FIELD(checkpoint.walltime_margin), to_nothing,
            "Seconds that must remain when the last checkpoint is on disk, before the job's time ends "
            "(Slurm's limit or `training.max_wall_time`). The time of one step and of saving is added to it")
            .obeys(not_negative),
        works(COEUS_FIELD(checkpoint.create_seed_checkpoint), to_nothing,
              "On one rank: write the initial weights as a checkpoint of step 0, then exit. Coeus does not "
              "need it: any number of ranks starts from the same weights"),
    };
    for (Option& option : guard_options()) table.push_back(std::move(option));
    return table;
}

}  // namespace coeus::config
