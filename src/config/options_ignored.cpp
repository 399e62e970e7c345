// SPDX-License-Identifier: Apache-2.0
// Options of torchtitan that do nothing here: those without a meaning in Coeus (no_effect), and those that
// belong to something not implemented yet (dormant). Type, rule and choices are checked, but no field keeps
// the value.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* no_python = "Coeus is one program and loads no Python modules";
constexpr const char* no_spmd = "Coeus has no distributed tensors whose types could be wrong";
constexpr const char* no_skipping = "tracing cycles start at step 1 and are repeated until the end";
constexpr const char* no_torchft =
    "Coeus does not use TorchFT; an interrupted run resumes from its checkpoint";
constexpr const char* replicas =
    "Coeus does not use TorchFT; parallelism.data_parallel_replicate_degree is the number of replica groups";
constexpr const char* own_buffer = "the last 1024 operations of each rank are always recorded";
constexpr const char* no_such_comm = "Coeus has no such mode; --dry_run --ranks N checks a deck for N ranks";
constexpr const char* own_loss =
    "the loss is the cross entropy over the model's vocabulary, computed in chunks that suit the machine";
constexpr const char* one_attention =
    "there is one attention kernel; with training.document_mask, it stays within documents";
constexpr const char* one_optimizer = "there is one implementation, which updates all weights in one go";
constexpr const char* always_ahead = "the next batch is always prepared during a step";
constexpr const char* flux = "model.name = \"flux\"";
constexpr const char* compiled_ahead = "kernels are compiled when Coeus is built";
constexpr const char* no_nvlink = "ranks of Coeus exchange weights by NCCL or MPI";
constexpr const char* pytorch_recompute = "it concerns recomputation in PyTorch";

// Options of torchtitan's loader of training or validation data.
std::vector<Option> loader_options(const std::string& section, bool training) {
    std::vector<Option> table = {
        no_effect(section + "num_workers", Type::integer, always_ahead, "Number of processes that read data"),
        no_effect(section + "persistent_workers", Type::boolean, always_ahead,
                  "Keep these processes between epochs"),
        no_effect(section + "pin_memory", Type::boolean, always_ahead, "Read into pinned memory"),
        no_effect(section + "prefetch_factor", Type::integer, always_ahead,
                  "Number of batches to read ahead"),
        no_effect(section + "prefetch_buffer_size", Type::integer, always_ahead,
                  "Number of samples to read ahead"),
        no_effect(section + "infinite", Type::boolean,
                  training ? "training always starts its data again at their end"
                           : "a validation reads its data once",
                  "Start again at the end of the data")
            .idle_at({training}),
    };
    if (!training)
        table.push_back(no_effect(section + "shuffle", Type::boolean,
                                  "a validation always reads its data in order", "Shuffle the sequences")
                            .idle_at({false}));
    return table;
}

}  // namespace

std::vector<Option> ignored_options() {
    std::vector<Option> table = {
        no_effect("job.custom_config_module", Type::text, no_python, "Python module that adds options"),
        no_effect("job.use_for_integration_test", Type::boolean, "the tests of Coeus do not read it",
                  "Mark the deck as part of an integration test"),
        no_effect("debug.deterministic", Type::boolean,
                  "every kernel here is deterministic, unless `kernels.deterministic` is `false`; "
                  "`comm.deterministic` is about NCCL's sums",
                  "Give bit-identical results for the same seed")
            .idle_at({true}),
        no_effect("debug.deterministic_warn_only", Type::boolean, "every kernel here is deterministic",
                  "Warn if an operation is not deterministic"),
        no_effect("debug.detect_anomaly", Type::boolean,
                  "every step checks that loss and gradient norm are finite",
                  "Detect gradients that are not finite"),
        no_effect("debug.batch_invariant", Type::boolean,
                  "torchtitan does not support it in pre-training either",
                  "Give bit-identical results for a sequence whatever else is in its batch"),
        no_effect("debug.spmd_typechecking", Type::boolean, no_spmd, "Check types of distributed tensors"),
        no_effect("debug.enable_structured_logging", Type::boolean, "metrics.jsonl contains all metrics",
                  "Write a trace of each rank in JSON Lines"),
        no_effect("profiling.profiler_repeat", Type::integer, no_skipping, "Number of cycles"),
        no_effect("profiling.profiler_skip_first", Type::integer, no_skipping,
                  "Number of steps before the first cycle"),
        no_effect("profiling.profiler_skip_first_wait", Type::integer, no_skipping,
                  "Skip the idle steps of the first cycle"),
        no_effect("metrics.enable_wandb", Type::boolean,
                  "Coeus uses no external services; metrics.jsonl contains all metrics",
                  "Send metrics to Weights & Biases"),
        no_effect("override.imports", Type::words, no_python,
                  "Python factories that replace parts of the program"),
        no_effect("comm.trace_buf_size", Type::integer, own_buffer, "Number of collectives that are recorded")
            .idle_at({int64_t(20000)}),
        no_effect("comm.mode", Type::text, "ranks of Coeus communicate through MPI",
                  "How ranks communicate, or simulate it")
            .one_of({"default", "torchcomms", "fake_backend", "local_tensor"})
            .idle_at({std::string("default")})
            .refuses({"fake_backend", "local_tensor"}, no_such_comm),
        no_effect("fault_tolerance.enable", Type::boolean, no_torchft,
                  "Train in replica groups that may fail"),
        no_effect("fault_tolerance.process_group", Type::text, no_torchft,
                  "Library that connects the replica groups")
            .one_of({"gloo", "nccl"}),
        no_effect("fault_tolerance.process_group_timeout_ms", Type::integer, no_torchft,
                  "Time-out of the process group, in ms")
            .idle_at({int64_t(10000)}),
        no_effect("fault_tolerance.replica_id", Type::integer, no_torchft, "Number of this replica group"),
        no_effect("fault_tolerance.group_size", Type::integer, replicas, "Number of replica groups"),
        no_effect("fault_tolerance.min_replica_size", Type::integer, no_torchft,
                  "Number of replica groups that a step needs")
            .idle_at({int64_t(1)}),
        no_effect("fault_tolerance.semi_sync_method", Type::text, no_torchft,
                  "How replica groups exchange weights, if they do not exchange gradients")
            .one_of({"none", "local_sgd", "diloco"})
            .idle_at({std::string("none")})
            .refuses({"local_sgd", "diloco"},
                     "replica groups that exchange weights only from time to time train another model than "
                     "groups that exchange gradients in each step, as Coeus does; remove it, and set "
                     "parallelism.data_parallel_replicate_degree to the number of groups"),
        no_effect("fault_tolerance.sync_steps", Type::integer, no_torchft,
                  "Number of steps between exchanges of weights")
            .idle_at({int64_t(5)}),
        no_effect("fault_tolerance.should_quantize", Type::boolean, no_torchft,
                  "Exchange weights in low precision"),
        no_effect("fault_tolerance.num_fragments", Type::integer, no_torchft,
                  "Number of fragments of the model that are exchanged in turn")
            .idle_at({int64_t(1)}),
        no_effect("fault_tolerance.fragment_sync_delay", Type::integer, no_torchft,
                  "Number of steps by which a fragment may be late"),
        no_effect("fault_tolerance.fragment_update_alpha", Type::real, no_torchft,
                  "Weight of the local replica group in a fragment"),
        no_effect("fault_tolerance.module_fqns_per_model_fragment", Type::word_lists, no_torchft,
                  "Modules of each fragment"),
        no_effect("memory_estimation.disable_fake_mode", Type::boolean, "memory is planned without tensors",
                  "Estimate memory with real tensors"),
        no_effect("experimental.custom_import", Type::text, no_python, "Python module to import"),
        no_effect("experimental.custom_args_module", Type::text, no_python,
                  "Python module that adds options"),
        no_effect("experimental.custom_model_path", Type::text, no_python,
                  "Folder of a model written in Python"),
        no_effect("experimental.enable_compiled_autograd", Type::boolean,
                  "kernels are compiled when Coeus is built", "Use PyTorch's compiled autograd"),
        no_effect("model.attn_backend", Type::text, one_attention, "Implementation of attention")
            .one_of({"sdpa", "flex", "flex_flash", "varlen"}),
        no_effect("model.tp_gemm_backend", Type::text, "there is one implementation",
                  "Implementation of matrix products with tensor parallelism")
            .one_of({"default", "dist_gemm"})
            .idle_at({std::string("default")}),
        no_effect("model.moe_comm_backend", Type::text, "there is one way", "How tokens travel to experts")
            .one_of({"standard", "deepep", "hybridep", "minimal_async_ep"}),
        no_effect("optimizer.fused", Type::boolean, one_optimizer, "Use PyTorch's fused optimizer"),
        no_effect("optimizer.foreach", Type::boolean, one_optimizer, "Use PyTorch's foreach optimizer"),
        no_effect("loss.num_chunks", Type::integer, own_loss,
                  "Number of chunks in which the loss is computed")
            .idle_at({int64_t(8)}),
        no_effect("loss.global_vocab_size", Type::integer, own_loss,
                  "Number of columns of the logits over all ranks"),
        dormant("encoder.t5_encoder", Type::text, flux, "T5 text encoder")
            .idle_at({std::string("google/t5-v1_1-small")}),
        dormant("encoder.clip_encoder", Type::text, flux, "CLIP text encoder")
            .idle_at({std::string("openai/clip-vit-large-patch14")}),
        dormant("encoder.autoencoder_path", Type::text, flux, "Weights of the autoencoder")
            .idle_at({std::string("")}),
        dormant("encoder.max_t5_encoding_len", Type::integer, flux, "Length of the longest T5 prompt")
            .obeys(at_least_1)
            .idle_at({int64_t(256)}),
        dormant("inference.save_img_folder", Type::text, flux,
                "Folder of images (inside `job.dump_folder` unless absolute)")
            .idle_at({std::string("inference_results")}),
        dormant("inference.prompts_path", Type::text, flux, "File of prompts").idle_at({std::string("")}),
        dormant("inference.local_batch_size", Type::integer, flux, "Number of prompts at a time")
            .obeys(at_least_1)
            .idle_at({int64_t(2)}),
        no_effect("training.gc_freq", Type::integer, "there is no garbage collector",
                  "Number of steps between garbage collections")
            .idle_at({int64_t(50)}),
        no_effect("training.gc_debug", Type::boolean, "there is no garbage collector",
                  "Debug garbage collection"),
        dormant("training.img_size", Type::integer, flux, "Edge length of an image, in pixels")
            .obeys(at_least_1)
            .idle_at({int64_t(256)}),
        dormant("training.classifier_free_guidance_prob", Type::real, flux,
                "Fraction of the prompts that is dropped")
            .obeys(fraction)
            .idle_at({0.0}),
        dormant("validation.enable_classifier_free_guidance", Type::boolean, flux,
                "Generate images with guidance")
            .idle_at({true}),
        dormant("validation.classifier_free_guidance_scale", Type::real, flux, "Strength of the guidance")
            .obeys(not_negative)
            .idle_at({5.0}),
        dormant("validation.denoising_steps", Type::integer, flux, "Number of denoising steps per image")
            .obeys(at_least_1)
            .idle_at({int64_t(50)}),
        dormant("validation.all_timesteps", Type::boolean, flux,
                "Measure the loss at eight fixed timesteps instead of random ones")
            .idle_at({false}),
        dormant("validation.save_img_folder", Type::text, flux,
                "Folder of images (inside `job.dump_folder` unless absolute)")
            .idle_at({std::string("img")}),
        dormant("validation.save_img_count", Type::integer, flux, "Number of images that are kept. -1: all")
            .obeys(all_or_some)
            .idle_at({int64_t(1)}),
        no_effect("checkpoint.enable_ft_dataloader_checkpoints", Type::boolean, no_torchft,
                  "Save the data position of each replica group"),
        no_effect("checkpoint.interval_type", Type::text, "intervals are counted in steps",
                  "Unit of `checkpoint.interval`")
            .one_of({"steps", "seconds"})
            .idle_at({std::string("steps")})
            .refuses({"seconds"}, "intervals in seconds are not implemented yet; they are counted in steps"),
        no_effect("parallelism.enable_fsdp_symm_mem", Type::boolean, no_nvlink,
                  "Gather weights through NVLink"),
        no_effect("parallelism.spmd_backend", Type::text, "Coeus has no distributed tensors",
                  "Kind of distributed tensors in PyTorch")
            .one_of({"spmd_types", "partial_dtensor"}),
        no_effect("parallelism.enable_sequence_parallel", Type::boolean,
                  "tensor parallelism always splits norms and residuals along the sequence",
                  "With tensor parallelism: split norms and residuals too")
            .idle_at({true}),
        no_effect("parallelism.context_parallel_ptrr_mask_key", Type::text,
                  "the document mask, by which ptrr would balance, has no name in Coeus",
                  "Mask by which ptrr balances"),
        no_effect("parallelism.expert_parallel_comm_backend", Type::text, "there is one way",
                  "How tokens travel to experts")
            .one_of({"standard", "deepep", "hybridep"})
            .idle_at({std::string("standard")}),
        no_effect("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", Type::words,
                  pytorch_recompute, "Matrix products that are always recomputed"),
        no_effect("activation_checkpoint.early_stop", Type::boolean,
                  "a block's last matrix product is never recomputed",
                  "Stop as soon as everything that is needed is recomputed"),
        no_effect("activation_checkpoint.visualize_memory_budget_pareto", Type::boolean, pytorch_recompute,
                  "Plot the trade-off of `activation_checkpoint.memory_budget`"),
        no_effect("activation_checkpoint.preserve_rng_state", Type::boolean, pytorch_recompute,
                  "Use the same random numbers in recomputation"),
        no_effect("activation_checkpoint.determinism_check", Type::text, pytorch_recompute,
                  "Compare recomputed tensors")
            .one_of({"default", "none"}),
        no_effect("activation_checkpoint.debug", Type::boolean, pytorch_recompute,
                  "Record what is recomputed"),
        no_effect("compile.enable", Type::boolean, compiled_ahead, "Use torch.compile"),
        no_effect("compile.components", Type::words, compiled_ahead, "Parts to compile")
            .one_of({"model", "loss"}),
        no_effect("compile.backend", Type::text, compiled_ahead, "Compiler to use"),
    };
    for (const std::string data : {"training", "validation"})
        for (Option& option : loader_options(data + ".dataloader.", data == "training"))
            table.push_back(std::move(option));
    return table;
}

}  // namespace coeus::config
