// SPDX-License-Identifier: Apache-2.0
// Options of training, validation, checkpoints.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* always_ahead = "the next batch is always prepared while a step runs";
constexpr const char* flux = "model.name = \"flux\"";
constexpr const char* by_name =
    "where there is no dataset_path: the name of a file or folder in $COEUS_DATASETS, ./datasets or "
    "./tests/assets; nothing is downloaded";
constexpr const char* weights_of_paths = "weight of each path, of any sum: the part of the samples it gives";

}  // namespace

std::vector<Option> training_options() {
    return {
        works(COEUS_FIELD(training.dataset), by_name),
        works(COEUS_FIELD(training.dataset_path),
              "the data: text, JSON or JSONL files (also .gz, .zst), folders of these, token files"),
        works(COEUS_FIELD(training.dataset_weights), weights_of_paths)
            .obeys(positive)
            .defaults_to("none: all text is joined, and token files count by their size"),
        works(COEUS_FIELD(training.local_batch_size), "sequences per rank at a time").obeys(at_least_1),
        works(COEUS_FIELD(training.global_batch_size),
              "sequences of a step over all ranks, summed in several local batches; -1: one local batch per "
              "rank")
            .obeys(all_or_some),
        works(COEUS_FIELD(training.seq_len), "tokens of a sequence").obeys(at_least_1),
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
        works(COEUS_FIELD(training.steps), "optimizer steps of the run").obeys(at_least_1),
        not_built(COEUS_FIELD(training.enable_cpu_offload), "keeping weights and moments in host memory",
                  "keep weights and moments in host memory"),
        works(COEUS_FIELD(training.dtype),
              "of weights and moments; bfloat16 rounds stochastically, float64 computes in float64 too")
            .one_of({"float32", "bfloat16", "float64"}),
        works(COEUS_FIELD(training.mixed_precision_param), "of the computation")
            .one_of({"bfloat16", "float32"}),
        works(COEUS_FIELD(training.mixed_precision_reduce), "of sums of gradients over ranks")
            .one_of({"float32"}),
        works(COEUS_FIELD(training.shuffle), "permute the sequences, anew in each epoch"),
        works(COEUS_FIELD(training.document_mask), "attention stays within documents"),
        works(COEUS_FIELD(training.threads),
              "threads of each rank; 0: the cores shared among the ranks of a node")
            .obeys(at_least_0),
        no_effect("training.gc_freq", Type::integer, "there is no garbage collector",
                  "steps between garbage collections"),
        no_effect("training.gc_debug", Type::boolean, "there is no garbage collector",
                  "debug garbage collection"),
        no_effect("training.disable_cuda_graphs", Type::boolean, "Coeus captures no CUDA graphs",
                  "launch kernels one by one"),
        no_effect("training.dataloader.num_workers", Type::integer, always_ahead, "processes that read data"),
        no_effect("training.dataloader.persistent_workers", Type::boolean, always_ahead,
                  "keep them between epochs"),
        no_effect("training.dataloader.pin_memory", Type::boolean, always_ahead, "read into pinned memory"),
        no_effect("training.dataloader.prefetch_factor", Type::integer, always_ahead, "batches read ahead"),
        dormant(COEUS_FIELD(training.img_size), flux, "edge of a picture").obeys(at_least_1),
        dormant(COEUS_FIELD(training.classifier_free_guidance_prob), flux, "part of prompts dropped")
            .obeys(fraction),

        works(COEUS_FIELD(validation.enable), "measure the loss on data that is not trained on"),
        works(COEUS_FIELD(validation.dataset), by_name),
        works(COEUS_FIELD(validation.dataset_path),
              "the data; none: every 100th sequence of training.dataset_path is held out"),
        works(COEUS_FIELD(validation.dataset_weights), weights_of_paths)
            .obeys(positive)
            .defaults_to("none: by size"),
        works(COEUS_FIELD(validation.local_batch_size), "sequences per rank at a time")
            .obeys(at_least_1)
            .defaults_to("training.local_batch_size"),
        works(COEUS_FIELD(validation.seq_len), "tokens of a sequence")
            .obeys(at_least_1)
            .defaults_to("training.seq_len"),
        no_effect("validation.dataloader.num_workers", Type::integer, always_ahead,
                  "processes that read data"),
        no_effect("validation.dataloader.persistent_workers", Type::boolean, always_ahead,
                  "keep them between epochs"),
        no_effect("validation.dataloader.pin_memory", Type::boolean, always_ahead, "read into pinned memory"),
        no_effect("validation.dataloader.prefetch_factor", Type::integer, always_ahead, "batches read ahead"),
        works(COEUS_FIELD(validation.freq), "validate at step 1 and every so many steps").obeys(at_least_1),
        works(COEUS_FIELD(validation.steps), "batches of a validation; -1: all data").obeys(all_or_some),
        dormant(COEUS_FIELD(validation.enable_classifier_free_guidance), flux, "make pictures with guidance"),
        dormant(COEUS_FIELD(validation.classifier_free_guidance_scale), flux, "strength of the guidance")
            .obeys(not_negative),
        dormant(COEUS_FIELD(validation.denoising_steps), flux, "steps that make a picture").obeys(at_least_1),
        dormant(COEUS_FIELD(validation.all_timesteps), flux,
                "measure at eight fixed times, not at random ones"),
        dormant(COEUS_FIELD(validation.save_img_folder), flux, "folder of pictures under dump_folder"),
        dormant(COEUS_FIELD(validation.save_img_count), flux, "pictures kept; -1: all").obeys(all_or_some),

        works(COEUS_FIELD(checkpoint.enable), "save checkpoints, and resume from the newest"),
        works(COEUS_FIELD(checkpoint.folder), "folder of the checkpoints under dump_folder"),
        works(COEUS_FIELD(checkpoint.interval), "steps between checkpoints").obeys(at_least_1),
        works(COEUS_FIELD(checkpoint.initial_load_path),
              "start from this checkpoint or Hugging Face folder where the run has none of its own"),
        works(COEUS_FIELD(checkpoint.initial_load_model_only), "take only the weights from there"),
        works(COEUS_FIELD(checkpoint.initial_load_in_hf),
              "it is a Hugging Face folder (without a path: model.hf_assets_path)"),
        not_built(COEUS_FIELD(checkpoint.initial_load_in_hf_quantized), "reading quantized weights",
                  "its weights are quantized"),
        works(COEUS_FIELD(checkpoint.last_save_model_only),
              "write only the weights after the last step, in export_dtype"),
        not_built(COEUS_FIELD(checkpoint.last_save_in_hf), "writing Hugging Face folders",
                  "write them as a Hugging Face folder"),
        works(COEUS_FIELD(checkpoint.export_dtype), "of the weights written after the last step")
            .one_of({"float32", "bfloat16", "float16"}),
        works(COEUS_FIELD(checkpoint.async_mode), "write while training goes on")
            .one_of({"disabled", "async", "async_with_pinned_mem"}, {"disabled"}),
        works(COEUS_FIELD(checkpoint.keep_latest_k), "checkpoints kept; 0: all").obeys(all_or_two),
        works(COEUS_FIELD(checkpoint.load_step), "resume from this step; -1: from the newest")
            .obeys(step_or_newest),
        not_built(COEUS_FIELD(checkpoint.exclude_from_loading), "loading parts of a checkpoint",
                  "parts of a checkpoint not to be loaded")
            .one_of({"optimizer", "lr_scheduler", "dataloader", "train_state"}),
        works(COEUS_FIELD(checkpoint.enable_first_step_checkpoint), "save after step 1 too"),
        works(COEUS_FIELD(checkpoint.load_only), "load, never save"),
        no_effect("checkpoint.create_seed_checkpoint", Type::boolean,
                  "any number of ranks starts from the same weights without one",
                  "write a checkpoint of step 0"),
        no_effect("checkpoint.enable_ft_dataloader_checkpoints", Type::boolean,
                  "there is no TorchFT here; a run that was interrupted resumes from its checkpoint",
                  "save the data position of each replica group"),
        no_effect("checkpoint.interval_type", Type::text, "intervals are always counted in steps",
                  "steps or seconds"),
    };
}

}  // namespace coeus::config
