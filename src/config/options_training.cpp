// SPDX-License-Identifier: Apache-2.0
// Options of training, validation, checkpoints.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* by_name =
    "name of the data, used if dataset_path is absent: a file or folder of that name in $COEUS_DATASETS, "
    "./datasets or ./tests/assets; nothing is downloaded";
constexpr const char* weights_of_paths = "weight of each path in the blend, of any sum";

std::vector<Option> guard_options() {
    return {
        works(COEUS_FIELD(guards.loss_spike), to_run,
              "what is done about a step whose loss or gradient norm is far above those before it: nothing; "
              "skip its update; or rewind to the last in-memory snapshot and pass over all samples since. "
              "The decisions are in the checkpoints, so that a resumed run takes the same ones")
            .one_of({"off", "skip", "rewind"}),
        works(COEUS_FIELD(guards.spike_window), to_run,
              "number of accepted steps whose mean and deviation say what is usual; there is no guard until "
              "so many are there")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.spike_z_score), to_run,
              "a spike is so many deviations above the mean (the deviation counts as 1% of the mean at "
              "least)")
            .obeys(positive),
        works(COEUS_FIELD(guards.spike_patience), to_run,
              "number of updates skipped in a row, or of rewinds to the same snapshot, after which the next "
              "spike ends the run with exit code 4")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.snapshot_interval), to_run,
              "number of steps between in-memory snapshots, where something rewinds to them; one is taken "
              "with each checkpoint too")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.compare_replicas_interval), to_run,
              "number of steps after which ranks that hold the same weights, moments and gradients compare "
              "them, as they also do before each checkpoint and snapshot; 0: never")
            .obeys(at_least_0),
        works(COEUS_FIELD(guards.on_mismatch), to_run,
              "what a run does if they differ: it stops with exit code 3 and can continue from its last "
              "checkpoint; or it rewinds to the last in-memory snapshot and repeats the steps since")
            .one_of({"stop", "rewind"}),
    };
}

}  // namespace

std::vector<Option> training_options() {
    std::vector<Option> table = {
        works(COEUS_FIELD(training.dataset), to_nothing, by_name),
        works(COEUS_FIELD(training.dataset_path), to_samples,
              "the data: text, JSON or JSONL files (also .gz, .zst), folders of these, token files"),
        works(COEUS_FIELD(training.dataset_weights), to_samples, weights_of_paths)
            .obeys(positive)
            .defaults_to("none: all text is joined, and token files count by their size"),
        works(COEUS_FIELD(training.local_batch_size), to_nothing, "number of sequences of a rank at a time")
            .obeys(at_least_1),
        works(COEUS_FIELD(training.global_batch_size), to_nothing,
              "number of sequences of a step over all ranks, summed in several local batches; -1: one local "
              "batch per rank")
            .obeys(all_or_some),
        works(COEUS_FIELD(training.seq_len), to_samples, "length of a sequence, in tokens").obeys(at_least_1),
        works(COEUS_FIELD(training.num_tokens_per_microbatch_per_dp_rank), to_run,
              "local_batch_size in tokens: a multiple of seq_len")
            .obeys(at_least_1)
            .defaults_to("local_batch_size x seq_len"),
        works(COEUS_FIELD(training.num_tokens_per_train_step), to_run,
              "global_batch_size in tokens: a multiple of seq_len; -1: one local batch per rank")
            .obeys(all_or_some)
            .defaults_to("global_batch_size x seq_len"),
        works(COEUS_FIELD(training.max_norm), to_run,
              "gradients are scaled down to this global norm; inf: never")
            .obeys(positive_or_infinite),
        works(COEUS_FIELD(training.steps), to_learning_rate, "number of optimizer steps of the run")
            .obeys(at_least_1),
        works(COEUS_FIELD(training.enable_cpu_offload), to_nothing,
              "on GPUs: keep moments, weights that are computed in another type, and the inputs of blocks "
              "that are computed again in host memory"),
        works(COEUS_FIELD(training.dtype), to_run,
              "type of weights and moments; bfloat16 rounds stochastically, float64 computes in float64 too")
            .one_of({"float32", "bfloat16", "float64"}),
        works(COEUS_FIELD(training.mixed_precision_param), to_run, "type in which the model is computed")
            .one_of({"bfloat16", "float32"}),
        works(COEUS_FIELD(training.mixed_precision_reduce), to_run,
              "type in which gradients are summed over ranks")
            .one_of({"float32"}),
        works(COEUS_FIELD(training.shuffle), to_samples, "permute the sequences, differently in each epoch")
            .defaults_to("true; a resumed run keeps its checkpoint's order"),
        works(COEUS_FIELD(training.document_mask), to_run, "let attention stay within documents"),
        works(COEUS_FIELD(training.threads), to_nothing,
              "number of threads of each rank; 0: the cores shared among the ranks of a node")
            .obeys(at_least_0),
        works(COEUS_FIELD(training.disable_cuda_graphs), to_run,
              "give a GPU its kernels one by one, not a step as graphs; the bits are the same"),
        works(COEUS_FIELD(training.max_wall_time), to_run,
              "save and end with exit code 75 before the process has lasted so long, written as for Slurm: "
              "\"30\" (minutes), \"23:30:00\", \"1-12:00:00\"; the end of a Slurm job counts too"),

        works(COEUS_FIELD(validation.enable), to_samples, "measure the loss on data that is not trained on"),
        works(COEUS_FIELD(validation.dataset), to_nothing, by_name),
        works(COEUS_FIELD(validation.dataset_path), to_samples,
              "the data; none: every 100th sequence of training.dataset_path is held out"),
        works(COEUS_FIELD(validation.dataset_weights), to_samples, weights_of_paths)
            .obeys(positive)
            .defaults_to("none: by size"),
        works(COEUS_FIELD(validation.local_batch_size), to_nothing, "number of sequences of a rank at a time")
            .obeys(at_least_1)
            .defaults_to("training.local_batch_size"),
        works(COEUS_FIELD(validation.seq_len), to_nothing, "length of a sequence, in tokens")
            .obeys(at_least_1)
            .defaults_to("training.seq_len"),
        works(COEUS_FIELD(validation.freq), to_nothing, "validate at step 1 and every so many steps")
            .obeys(at_least_1),
        works(COEUS_FIELD(validation.steps), to_nothing, "number of batches of a validation; -1: all data")
            .obeys(all_or_some),

        works(COEUS_FIELD(checkpoint.enable), to_nothing, "save checkpoints, and resume from the newest"),
        works(COEUS_FIELD(checkpoint.folder), to_nothing,
              "folder of the checkpoints (inside dump_folder, unless absolute)"),
        works(COEUS_FIELD(checkpoint.interval), to_nothing, "number of steps between checkpoints")
            .obeys(at_least_1),
        works(COEUS_FIELD(checkpoint.initial_load_path), to_nothing,
              "start from this checkpoint or Hugging Face folder where the run has none of its own"),
        works(COEUS_FIELD(checkpoint.initial_load_model_only), to_nothing,
              "take only the weights from initial_load_path, not the moments and the step"),
        works(COEUS_FIELD(checkpoint.initial_load_in_hf), to_nothing,
              "initial_load_path is a Hugging Face folder (where it is not given: model.hf_assets_path)"),
        not_built(COEUS_FIELD(checkpoint.initial_load_in_hf_quantized), to_nothing,
                  "reading quantized weights", "the weights of that folder are quantized"),
        works(COEUS_FIELD(checkpoint.last_save_model_only), to_nothing,
              "after the last step, write also the weights alone, in export_dtype"),
        works(COEUS_FIELD(checkpoint.last_save_in_hf), to_nothing,
              "write the weights after the last step as a Hugging Face folder"),
        works(COEUS_FIELD(checkpoint.export_dtype), to_nothing,
              "type of the weights written after the last step")
            .one_of({"float32", "bfloat16", "float16"}),
        works(COEUS_FIELD(checkpoint.async_mode), to_nothing, "write checkpoints while training continues")
            .one_of({"disabled", "async", "async_with_pinned_mem"}),
        works(COEUS_FIELD(checkpoint.keep_latest_k), to_nothing, "number of checkpoints kept; 0: all")
            .obeys(all_or_two),
        works(COEUS_FIELD(checkpoint.files), to_nothing,
              "number of files of a checkpoint, for file systems where one is slow; step-*.h5 links to them")
            .obeys(at_most_256),
        works(COEUS_FIELD(checkpoint.load_step), to_nothing, "resume from this step; -1: from the newest")
            .obeys(step_or_newest),
        works(COEUS_FIELD(checkpoint.exclude_from_loading), to_nothing,
              "parts of a checkpoint not to be loaded: they begin again, once; the run continues with them")
            .one_of({"optimizer", "lr_scheduler", "dataloader", "train_state"}),
        works(COEUS_FIELD(checkpoint.enable_first_step_checkpoint), to_nothing,
              "save a checkpoint after step 1 too"),
        works(COEUS_FIELD(checkpoint.load_only), to_nothing, "load a checkpoint, never save one"),
        works(
            COEUS_FIELD(checkpoint.walltime_margin), to_nothing,
            "seconds that are to be left when the last checkpoint before the end of the job's time (Slurm's, "
            "or training.max_wall_time) is on the disk; a step and the time of a save come on top")
            .obeys(not_negative),
        works(
            COEUS_FIELD(checkpoint.create_seed_checkpoint), to_nothing,
            "on one rank: write the initial weights as a checkpoint of step 0, and end; Coeus does not need "
            "it, as any number of ranks starts from the same weights"),
    };
    for (Option& option : guard_options()) table.push_back(std::move(option));
    return table;
}

}  // namespace coeus::config
