// SPDX-License-Identifier: Apache-2.0
// Options of torchtitan that do nothing here: those without a meaning in Coeus (no_effect) and those of
// something that is not built yet (dormant). Type, rule and choices are checked; no field keeps the value.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* no_python = "Coeus is one program and loads no Python modules";
constexpr const char* no_spmd = "Coeus has no distributed tensors whose types could be wrong";
constexpr const char* no_skipping = "cycles of tracing begin at step 1 and continue to the end";
constexpr const char* no_torchft =
    "there is no TorchFT here; a run that was interrupted resumes from its checkpoint";
constexpr const char* own_buffer = "the last 1024 operations of a rank are always remembered";
constexpr const char* no_such_comm =
    "Coeus has no such communication; --dry_run --ranks N checks a deck for a mesh of N ranks";
constexpr const char* own_loss =
    "the loss is the cross entropy of the model's vocabulary, cut as suits the machine";
constexpr const char* one_attention =
    "attention is one kernel; training.document_mask says whether it stays within documents";
constexpr const char* one_optimizer = "there is one implementation, in one pass over the weights";
constexpr const char* always_ahead = "the next batch is always prepared while a step runs";
constexpr const char* flux = "model.name = \"flux\"";
constexpr const char* compiled_ahead = "kernels are compiled when Coeus is built";
constexpr const char* no_nvlink = "ranks of Coeus exchange weights through MPI";
constexpr const char* pytorch_recompute = "it concerns PyTorch's recomputation";
constexpr const char* no_mx = "MXFP8 is not a format of Coeus";

// Options of torchtitan's loader of training data, or of validation data.
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

}  // namespace

std::vector<Option> ignored_options() {
    std::vector<Option> table = {
        no_effect("job.custom_config_module", Type::text, no_python,
                  "Python module that extends the options"),
        no_effect("job.use_for_integration_test", Type::boolean, "the tests of Coeus do not read it",
                  "mark the deck as one of an integration test"),
        no_effect("debug.deterministic", Type::boolean, "every kernel here is deterministic",
                  "same bits for the same seed")
            .idle_at({true}),
        no_effect("debug.deterministic_warn_only", Type::boolean, "every kernel here is deterministic",
                  "warn where an operation is not deterministic"),
        no_effect("debug.detect_anomaly", Type::boolean,
                  "loss and gradient norm of every step are checked for being finite",
                  "look for gradients that are not finite"),
        no_effect("debug.batch_invariant", Type::boolean, "torchtitan too refuses it in pre-training",
                  "same bits for a sequence whatever else is in its batch"),
        no_effect("debug.spmd_typechecking", Type::boolean, no_spmd, "check types of distributed tensors"),
        no_effect("debug.enable_structured_logging", Type::boolean, "metrics.jsonl has all figures",
                  "write a trace of each rank in JSON lines"),
        dormant("debug.moe_force_load_balance", Type::boolean, "experts",
                "assign experts round-robin, for measuring")
            .idle_at({false}),
        no_effect("profiling.profiler_repeat", Type::integer, no_skipping, "number of cycles"),
        no_effect("profiling.profiler_skip_first", Type::integer, no_skipping,
                  "steps before the first cycle"),
        no_effect("profiling.profiler_skip_first_wait", Type::integer, no_skipping,
                  "leave out the idle steps of the first cycle"),
        no_effect("metrics.enable_wandb", Type::boolean,
                  "Coeus talks to no outside service; metrics.jsonl has all figures",
                  "send metrics to wandb"),
        no_effect("override.imports", Type::words, no_python,
                  "Python factories that replace parts of the program"),
        no_effect("comm.trace_buf_size", Type::integer, own_buffer,
                  "number of collectives that are remembered")
            .idle_at({int64_t(20000)}),
        no_effect("comm.mode", Type::text, "ranks of Coeus communicate through MPI",
                  "how ranks communicate, or seem to")
            .one_of({"default", "torchcomms", "fake_backend", "local_tensor"})
            .idle_at({std::string("default")})
            .refuses({"fake_backend", "local_tensor"}, no_such_comm),
        no_effect("fault_tolerance.enable", Type::boolean, no_torchft,
                  "train in replica groups that may fail"),
        no_effect("fault_tolerance.process_group", Type::text, no_torchft,
                  "library that connects the replica groups")
            .one_of({"gloo", "nccl"}),
        no_effect("fault_tolerance.process_group_timeout_ms", Type::integer, no_torchft,
                  "time-out of the process group, in ms")
            .idle_at({int64_t(10000)}),
        no_effect("fault_tolerance.replica_id", Type::integer, no_torchft, "number of this replica group"),
        no_effect("fault_tolerance.group_size", Type::integer, no_torchft, "number of replica groups"),
        no_effect("fault_tolerance.min_replica_size", Type::integer, no_torchft,
                  "number of replica groups that a step needs")
            .idle_at({int64_t(1)}),
        no_effect("fault_tolerance.semi_sync_method", Type::text, no_torchft,
                  "how replica groups exchange weights, where they do not exchange gradients")
            .one_of({"none", "local_sgd", "diloco"})
            .idle_at({std::string("none")})
            .refuses(
                {"local_sgd", "diloco"},
                "replica groups that exchange weights only now and then are not built yet; leave it out"),
        no_effect("fault_tolerance.sync_steps", Type::integer, no_torchft,
                  "number of steps between exchanges of weights")
            .idle_at({int64_t(5)}),
        no_effect("fault_tolerance.should_quantize", Type::boolean, no_torchft,
                  "exchange weights in few bits"),
        no_effect("fault_tolerance.num_fragments", Type::integer, no_torchft,
                  "number of parts of the model that are exchanged in turn")
            .idle_at({int64_t(1)}),
        no_effect("fault_tolerance.fragment_sync_delay", Type::integer, no_torchft,
                  "number of steps that such a part may be late"),
        no_effect("fault_tolerance.fragment_update_alpha", Type::real, no_torchft,
                  "weight of the own replica group in such a part"),
        no_effect("fault_tolerance.module_fqns_per_model_fragment", Type::word_lists, no_torchft,
                  "modules of each such part"),
        no_effect("memory_estimation.disable_fake_mode", Type::boolean,
                  "the memory is planned without any tensors", "estimate it with real tensors"),
        no_effect("experimental.custom_import", Type::text, no_python, "Python module to import"),
        no_effect("experimental.custom_args_module", Type::text, no_python,
                  "Python module that extends the options"),
        no_effect("experimental.custom_model_path", Type::text, no_python, "folder of a Python model"),
        no_effect("experimental.enable_compiled_autograd", Type::boolean,
                  "kernels are compiled when Coeus is built", "use PyTorch's compiled autograd"),
        no_effect("model.print_after_conversion", Type::boolean, "the model is not rewritten by converters",
                  "print the converted model"),
        no_effect("model.attn_backend", Type::text, one_attention, "implementation of attention")
            .one_of({"sdpa", "flex", "flex_flash", "varlen"}),
        no_effect("model.tp_gemm_backend", Type::text, "there is one kind of GEMM",
                  "implementation of GEMMs under tensor parallelism")
            .one_of({"default", "dist_gemm"})
            .idle_at({std::string("default")}),
        no_effect("model.moe_comm_backend", Type::text, "tokens travel to experts through MPI",
                  "how tokens travel to experts")
            .one_of({"standard", "deepep", "hybridep", "minimal_async_ep"}),
        no_effect("model.non_blocking_capacity_factor", Type::real, "tokens travel to experts through MPI",
                  "room for tokens of other ranks, as a multiple of an even share"),
        no_effect("optimizer.fused", Type::boolean, one_optimizer, "use PyTorch's fused optimizer"),
        no_effect("optimizer.foreach", Type::boolean, one_optimizer, "use PyTorch's foreach optimizer"),
        no_effect("loss.num_chunks", Type::integer, own_loss,
                  "number of pieces in which the loss is computed")
            .idle_at({int64_t(8)}),
        no_effect("loss.loss_fn", Type::text, own_loss, "kind of loss")
            .one_of({"CrossEntropyLoss", "ChunkedLossWrapper", "MSELoss", "MTPLoss"})
            .refuses({"MSELoss", "MTPLoss"}, "losses other than the cross entropy are not built yet"),
        no_effect("loss.global_vocab_size", Type::integer, own_loss,
                  "number of columns of the logits over all ranks"),
        dormant("encoder.t5_encoder", Type::text, flux, "T5 text encoder")
            .idle_at({std::string("google/t5-v1_1-small")}),
        dormant("encoder.clip_encoder", Type::text, flux, "CLIP text encoder")
            .idle_at({std::string("openai/clip-vit-large-patch14")}),
        dormant("encoder.autoencoder_path", Type::text, flux, "autoencoder's weights")
            .idle_at({std::string("")}),
        dormant("encoder.max_t5_encoding_len", Type::integer, flux, "longest T5 prompt")
            .obeys(at_least_1)
            .idle_at({int64_t(256)}),
        dormant("inference.save_img_folder", Type::text, flux,
                "folder of pictures (inside dump_folder, unless absolute)")
            .idle_at({std::string("inference_results")}),
        dormant("inference.prompts_path", Type::text, flux, "file of prompts").idle_at({std::string("")}),
        dormant("inference.local_batch_size", Type::integer, flux, "prompts at a time")
            .obeys(at_least_1)
            .idle_at({int64_t(2)}),
        no_effect("training.gc_freq", Type::integer, "there is no garbage collector",
                  "number of steps between garbage collections")
            .idle_at({int64_t(50)}),
        no_effect("training.gc_debug", Type::boolean, "there is no garbage collector",
                  "debug garbage collection"),
        dormant("training.img_size", Type::integer, flux, "edge of a picture, in pixels")
            .obeys(at_least_1)
            .idle_at({int64_t(256)}),
        dormant("training.classifier_free_guidance_prob", Type::real, flux,
                "part of the prompts that are dropped")
            .obeys(fraction)
            .idle_at({0.0}),
        dormant("validation.enable_classifier_free_guidance", Type::boolean, flux,
                "make pictures with guidance")
            .idle_at({true}),
        dormant("validation.classifier_free_guidance_scale", Type::real, flux, "strength of the guidance")
            .obeys(not_negative)
            .idle_at({5.0}),
        dormant("validation.denoising_steps", Type::integer, flux, "number of steps that make a picture")
            .obeys(at_least_1)
            .idle_at({int64_t(50)}),
        dormant("validation.all_timesteps", Type::boolean, flux,
                "measure at eight fixed times of the noise, not at random ones")
            .idle_at({false}),
        dormant("validation.save_img_folder", Type::text, flux,
                "folder of pictures (inside dump_folder, unless absolute)")
            .idle_at({std::string("img")}),
        dormant("validation.save_img_count", Type::integer, flux, "number of pictures kept; -1: all")
            .obeys(all_or_some)
            .idle_at({int64_t(1)}),
        no_effect("checkpoint.enable_ft_dataloader_checkpoints", Type::boolean,
                  "there is no TorchFT here; a run that was interrupted resumes from its checkpoint",
                  "save the data position of each replica group"),
        no_effect("checkpoint.interval_type", Type::text, "intervals are counted in steps",
                  "what checkpoint.interval counts")
            .one_of({"steps", "seconds"})
            .idle_at({std::string("steps")})
            .refuses({"seconds"}, "intervals in seconds are not built yet; they are counted in steps"),
        no_effect("parallelism.enable_fsdp_symm_mem", Type::boolean, no_nvlink,
                  "gather weights through NVLink"),
        no_effect("parallelism.spmd_backend", Type::text, "Coeus has no distributed tensors",
                  "kind of PyTorch's distributed tensors")
            .one_of({"spmd_types", "partial_dtensor"}),
        no_effect("parallelism.enable_sequence_parallel", Type::boolean,
                  "tensor parallelism always splits norms and residuals along the sequence",
                  "split norms and residuals too under tensor parallelism")
            .idle_at({true}),
        dormant("parallelism.pipeline_parallel_expert_parallel_overlap", Type::boolean,
                "parallelism.expert_parallel_degree",
                "under DualPipeV, overlap the exchange of tokens between experts")
            .idle_at({true}),
        no_effect("parallelism.context_parallel_ptrr_mask_key", Type::text,
                  "ptrr balances by the document mask, which has no name here", "mask that ptrr balances by"),
        dormant("parallelism.expert_parallel_comm_backend", Type::text, "parallelism.expert_parallel_degree",
                "how tokens travel to experts")
            .one_of({"standard", "deepep", "hybridep"})
            .idle_at({std::string("standard")}),
        no_effect("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", Type::words,
                  pytorch_recompute, "GEMMs that are always computed again"),
        no_effect("activation_checkpoint.early_stop", Type::boolean,
                  "a block's last matrix product is never computed again",
                  "stop once all that is needed is recomputed"),
        no_effect("activation_checkpoint.visualize_memory_budget_pareto", Type::boolean, pytorch_recompute,
                  "draw the trade-off of memory_budget"),
        no_effect("activation_checkpoint.preserve_rng_state", Type::boolean, pytorch_recompute,
                  "use the same random numbers again"),
        no_effect("activation_checkpoint.determinism_check", Type::text, pytorch_recompute,
                  "compare recomputed tensors")
            .one_of({"default", "none"}),
        no_effect("activation_checkpoint.debug", Type::boolean, pytorch_recompute,
                  "record what is recomputed"),
        no_effect("compile.enable", Type::boolean, compiled_ahead, "use torch.compile"),
        no_effect("compile.components", Type::words, compiled_ahead, "parts to compile")
            .one_of({"model", "loss"}),
        no_effect("compile.backend", Type::text, compiled_ahead, "which compiler to use"),
        dormant("quantize.linear.float8.enable_fsdp_float8_all_gather", Type::boolean, "model.converters",
                "gather weights in 8 bits")
            .idle_at({false}),
        dormant("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", Type::boolean,
                "model.converters", "compute the scales of all weights in one exchange")
            .idle_at({false}),
        dormant("quantize.linear.float8.recipe_name", Type::text, "model.converters",
                "granularity of the scales; none is tensorwise")
            .one_of({"tensorwise", "rowwise", "rowwise_with_gw_hp", "none"})
            .idle_at({std::string("tensorwise")}),
        dormant("quantize.linear.float8.filter_fqns", Type::words, "model.converters",
                "names of layers that stay in 16 bits")
            .idle_at({TomlValue::List()}),
        dormant("quantize.linear.float8.emulate", Type::boolean, "model.converters",
                "compute 8-bit products in software")
            .idle_at({false}),
        dormant("quantize.grouped_mm.float8.fqns", Type::words, "model.converters",
                "names of expert layers to compute in 8 bits")
            .idle_at({TomlValue::List()}),
        no_effect("quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", Type::text, no_mx,
                  "kernel that casts along the first dimension")
            .one_of({"triton", "cuda", "torch"}),
        no_effect("quantize.linear.mx.recipe_name", Type::text, no_mx, "kind of MXFP8"),
        no_effect("quantize.linear.mx.filter_fqns", Type::words, no_mx,
                  "names of layers that stay in 16 bits"),
        no_effect("quantize.grouped_mm.mx.recipe_name", Type::text, no_mx, "kind of MXFP8").one_of({"mxfp8"}),
        no_effect("quantize.grouped_mm.mx.fqns", Type::words, no_mx,
                  "names of expert layers to compute in 8 bits"),
    };
    for (const std::string data : {"training", "validation"})
        for (Option& option : loader_options(data + ".dataloader.", data == "training"))
            table.push_back(std::move(option));
    return table;
}

}  // namespace coeus::config
