// SPDX-License-Identifier: Apache-2.0
// Options of training, validation, checkpoints.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* always_ahead = "the next batch is always prepared while a step runs";
constexpr const char* flux = "model.name = \"flux\"";
constexpr const char* by_name =
    "name of the data, for where there is no dataset_path: a file or folder of that name in $COEUS_DATASETS, "
    "./datasets or ./tests/assets; nothing is downloaded";
constexpr const char* weights_of_paths = "weight of each path in the blend, of any sum";

// Of torchtitan's loader of training data, or of validation data.
std::vector<Option> loader_options(const std::string& section, bool training) {
    std::vector<Option> table = {
        no_effect(section + "num_workers", Type::integer, always_ahead, "number of processes that read data"),
        no_effect(section + "persistent_workers", Type::boolean, always_ahead,
                  "keep these processes between epochs"),
        no_effect(section + "pin_memory", Type::boolean, always_ahead, "read into pinned memory"),
        no_effect(section + "prefetch_factor", Type::integer, always_ahead,
                  "number of batches that are read ahead"),
        no_effect(section + "prefetch_buffer_size", Type::integer, always_ahead,
                  "number of samples that are read ahead"),
        no_effect(
            section + "infinite", Type::boolean,
            training ? "training begins its data again where they end" : "a validation reads its data once",
            "begin again where the data end")
            .idle_at({training}),
    };
    if (!training)
        table.push_back(no_effect(section + "shuffle", Type::boolean,
                                  "a validation reads its data in their order, each time the same",
                                  "permute the sequences")
                            .idle_at({false}));
    return table;
}

std::vector<Option> guard_options() {
    return {
        works(COEUS_FIELD(guards.loss_spike),
              "what is done about a step whose loss or gradient norm is far above those before it: nothing; "
              "skip its update; or rewind to the last in-memory snapshot and pass over all samples since. "
              "The decisions are in the checkpoints, so that a resumed run takes the same ones")
            .one_of({"off", "skip", "rewind"}),
        works(COEUS_FIELD(guards.spike_window),
              "number of accepted steps whose mean and deviation say what is usual; there is no guard until "
              "so many are there")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.spike_z_score),
              "a spike is so many deviations above the mean (the deviation counts as 1% of the mean at "
              "least)")
            .obeys(positive),
        works(COEUS_FIELD(guards.spike_patience),
              "number of updates skipped in a row, or of rewinds to the same snapshot, after which the next "
              "spike ends the run with exit code 4")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.snapshot_interval),
              "number of steps between in-memory snapshots, where something rewinds to them; one is taken "
              "with each checkpoint too")
            .obeys(at_least_1),
        works(COEUS_FIELD(guards.compare_replicas_interval),
              "number of steps after which ranks that hold the same weights, moments and gradients compare "
              "them, as they also do before each checkpoint and snapshot; 0: never")
            .obeys(at_least_0),
        works(COEUS_FIELD(guards.on_mismatch),
              "what is done where they differ: stop with exit code 3, so that the run may go on from its "
              "last checkpoint; or rewind to the last in-memory snapshot and repeat the steps since")
            .one_of({"stop", "rewind"}),
    };
}

}  // namespace

std::vector<Option> training_options() {
    std::vector<Option> table = {
        works(COEUS_FIELD(training.dataset), by_name),
        works(COEUS_FIELD(training.dataset_path),
              "the data: text, JSON or JSONL files (also .gz, .zst), folders of these, token files"),
        works(COEUS_FIELD(training.dataset_weights), weights_of_paths)
            .obeys(positive)
            .defaults_to("none: all text is joined, and token files count by their size"),
        works(COEUS_FIELD(training.local_batch_size), "number of sequences of a rank at a time")
            .obeys(at_least_1),
        works(COEUS_FIELD(training.global_batch_size),
              "number of sequences of a step over all ranks, summed in several local batches; -1: one local "
              "batch per rank")
            .obeys(all_or_some),
        works(COEUS_FIELD(training.seq_len), "length of a sequence, in tokens").obeys(at_least_1),
        works(COEUS_FIELD(training.num_tokens_per_microbatch_per_dp_rank),
              "local_batch_size in tokens: a multiple of seq_len")
            .obeys(at_least_1)
            .defaults_to("local_batch_size x seq_len"),
        works(COEUS_FIELD(training.num_tokens_per_train_step),
              "global_batch_size in tokens: a multiple of seq_len; -1: one local batch per rank")
            .obeys(all_or_some)
            .defaults_to("global_batch_size x seq_len"),
        works(COEUS_FIELD(training.max_norm), "gradients are scaled down to this global norm; inf: never")
            .obeys(positive_or_infinite),
        works(COEUS_FIELD(training.steps), "number of optimizer steps of the run").obeys(at_least_1),
        works(COEUS_FIELD(training.enable_cpu_offload),
              "on GPUs: keep moments, weights that are computed in another type, and the inputs of blocks "
              "that are computed again in host memory"),
        works(COEUS_FIELD(training.dtype),
              "type of weights and moments; bfloat16 rounds stochastically, float64 computes in float64 too")
            .one_of({"float32", "bfloat16", "float64"}),
        works(COEUS_FIELD(training.mixed_precision_param), "type in which the model is computed")
            .one_of({"bfloat16", "float32"}),
        works(COEUS_FIELD(training.mixed_precision_reduce), "type in which gradients are summed over ranks")
            .one_of({"float32"}),
        works(COEUS_FIELD(training.shuffle), "permute the sequences, anew in each epoch"),
        works(COEUS_FIELD(training.document_mask), "let attention stay within documents"),
        works(COEUS_FIELD(training.threads),
              "number of threads of each rank; 0: the cores shared among the ranks of a node")
            .obeys(at_least_0),
        no_effect("training.gc_freq", Type::integer, "there is no garbage collector",
                  "number of steps between garbage collections")
            .idle_at({int64_t(50)}),
        no_effect("training.gc_debug", Type::boolean, "there is no garbage collector",
                  "debug garbage collection"),
        works(COEUS_FIELD(training.disable_cuda_graphs),
              "give a GPU its kernels one by one, not a step as graphs; the bits are the same"),
        works(COEUS_FIELD(training.max_wall_time),
              "save and end with exit code 75 before the process has lasted so long, written as for Slurm: "
              "\"30\" (minutes), \"23:30:00\", \"1-12:00:00\"; the end of a Slurm job counts too"),
        dormant(COEUS_FIELD(training.img_size), flux, "edge of a picture, in pixels").obeys(at_least_1),
        dormant(COEUS_FIELD(training.classifier_free_guidance_prob), flux,
                "part of the prompts that are dropped")
            .obeys(fraction),

        works(COEUS_FIELD(validation.enable), "measure the loss on data that is not trained on"),
        works(COEUS_FIELD(validation.dataset), by_name),
        works(COEUS_FIELD(validation.dataset_path),
              "the data; none: every 100th sequence of training.dataset_path is held out"),
        works(COEUS_FIELD(validation.dataset_weights), weights_of_paths)
            .obeys(positive)
            .defaults_to("none: by size"),
        works(COEUS_FIELD(validation.local_batch_size), "number of sequences of a rank at a time")
            .obeys(at_least_1)
            .defaults_to("training.local_batch_size"),
        works(COEUS_FIELD(validation.seq_len), "length of a sequence, in tokens")
            .obeys(at_least_1)
            .defaults_to("training.seq_len"),
        works(COEUS_FIELD(validation.freq), "validate at step 1 and every so many steps").obeys(at_least_1),
        works(COEUS_FIELD(validation.steps), "number of batches of a validation; -1: all data")
            .obeys(all_or_some),
        dormant(COEUS_FIELD(validation.enable_classifier_free_guidance), flux, "make pictures with guidance"),
        dormant(COEUS_FIELD(validation.classifier_free_guidance_scale), flux, "strength of the guidance")
            .obeys(not_negative),
        dormant(COEUS_FIELD(validation.denoising_steps), flux, "number of steps that make a picture")
            .obeys(at_least_1),
        dormant(COEUS_FIELD(validation.all_timesteps), flux,
                "measure at eight fixed times of the noise, not at random ones"),
        dormant(COEUS_FIELD(validation.save_img_folder), flux,
                "folder of pictures (inside dump_folder, unless absolute)"),
        dormant(COEUS_FIELD(validation.save_img_count), flux, "number of pictures kept; -1: all")
            .obeys(all_or_some),

        works(COEUS_FIELD(checkpoint.enable), "save checkpoints, and resume from the newest"),
        works(COEUS_FIELD(checkpoint.folder),
              "folder of the checkpoints (inside dump_folder, unless absolute)"),
        works(COEUS_FIELD(checkpoint.interval), "number of steps between checkpoints").obeys(at_least_1),
        works(COEUS_FIELD(checkpoint.initial_load_path),
              "start from this checkpoint or Hugging Face folder where the run has none of its own"),
        works(COEUS_FIELD(checkpoint.initial_load_model_only),
              "take only the weights from initial_load_path, not the moments and the step"),
        works(COEUS_FIELD(checkpoint.initial_load_in_hf),
              "initial_load_path is a Hugging Face folder (where it is not given: model.hf_assets_path)"),
        not_built(COEUS_FIELD(checkpoint.initial_load_in_hf_quantized), "reading quantized weights",
                  "the weights of that folder are quantized"),
        works(COEUS_FIELD(checkpoint.last_save_model_only),
              "after the last step, write also the weights alone, in export_dtype"),
        works(COEUS_FIELD(checkpoint.last_save_in_hf),
              "write the weights after the last step as a Hugging Face folder"),
        works(COEUS_FIELD(checkpoint.export_dtype), "type of the weights written after the last step")
            .one_of({"float32", "bfloat16", "float16"}),
        works(COEUS_FIELD(checkpoint.async_mode), "write checkpoints while training goes on")
            .one_of({"disabled", "async", "async_with_pinned_mem"}),
        works(COEUS_FIELD(checkpoint.keep_latest_k), "number of checkpoints kept; 0: all").obeys(all_or_two),
        works(COEUS_FIELD(checkpoint.files),
              "number of files of a checkpoint, for file systems where one is slow; step-*.h5 links to them")
            .obeys(at_most_256),
        works(COEUS_FIELD(checkpoint.load_step), "resume from this step; -1: from the newest")
            .obeys(step_or_newest),
        works(COEUS_FIELD(checkpoint.exclude_from_loading),
              "parts of a checkpoint not to be loaded: they begin anew, once; the run goes on with them")
            .one_of({"optimizer", "lr_scheduler", "dataloader", "train_state"}),
        works(COEUS_FIELD(checkpoint.enable_first_step_checkpoint), "save a checkpoint after step 1 too"),
        works(COEUS_FIELD(checkpoint.load_only), "load a checkpoint, never save one"),
        works(
            COEUS_FIELD(checkpoint.walltime_margin),
            "seconds that are to be left when the last checkpoint before the end of the job's time (Slurm's, "
            "or training.max_wall_time) is on the disk; a step and the time of a save come on top")
            .obeys(not_negative),
        works(
            COEUS_FIELD(checkpoint.create_seed_checkpoint),
            "on one rank: write the initial weights as a checkpoint of step 0, and end; Coeus does not need "
            "it, as any number of ranks starts from the same weights"),
        no_effect("checkpoint.enable_ft_dataloader_checkpoints", Type::boolean,
                  "there is no TorchFT here; a run that was interrupted resumes from its checkpoint",
                  "save the data position of each replica group"),
        no_effect("checkpoint.interval_type", Type::text, "intervals are counted in steps",
                  "what checkpoint.interval counts")
            .one_of({"steps", "seconds"})
            .idle_at({std::string("steps")})
            .refuses({"seconds"}, "intervals in seconds are not built yet; they are counted in steps"),
    };
    for (Option& option : guard_options()) table.push_back(std::move(option));
    for (const std::string data : {"training", "validation"})
        for (Option& option : loader_options(data + ".dataloader.", data == "training"))
            table.push_back(std::move(option));
    return table;
}

}  // namespace coeus::config
