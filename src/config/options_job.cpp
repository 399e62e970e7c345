// SPDX-License-Identifier: Apache-2.0
// Options of the run as such: where it writes, what it shows and measures; and, at the end of the table,
// those of torchtitan's helpers.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* no_python = "Coeus is one program and loads no Python modules";
constexpr const char* no_spmd = "Coeus has no distributed tensors whose types could be wrong";
constexpr const char* no_skipping = "cycles of tracing begin at step 1 and go on to the end";
constexpr const char* no_torchft =
    "there is no TorchFT here; a run that was interrupted resumes from its checkpoint";
constexpr const char* own_buffer = "the last 1024 operations of a rank are always remembered";
constexpr const char* no_such_comm =
    "there is no such communication here; --dry_run --ranks N checks a deck for a mesh of N ranks";

}  // namespace

std::vector<Option> job_options() {
    return {
        works(COEUS_FIELD(device),
              "where to compute; auto: a GPU where there is one and Coeus is built for it")
            .one_of({"auto", "cpu", "cuda"}),

        works(COEUS_FIELD(job.config_file), "the deck; the same as giving it as first argument"),
        works(COEUS_FIELD(job.dump_folder), "folder of everything the run writes"),
        works(COEUS_FIELD(job.description), "free text, said at the start"),
        works(COEUS_FIELD(job.print_config), "print the effective deck at the start"),
        works(COEUS_FIELD(job.save_config_file),
              "also write the effective deck to this file (inside dump_folder, unless absolute)"),
        no_effect("job.custom_config_module", Type::text, no_python,
                  "Python module that extends the options"),
        no_effect("job.use_for_integration_test", Type::boolean, "the tests of Coeus do not read it",
                  "mark the deck as one of an integration test"),

        works(COEUS_FIELD(debug.seed), "seed of initial weights, data order and stochastic rounding")
            .obeys(at_least_0),
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
        dormant(COEUS_FIELD(debug.moe_force_load_balance), "experts",
                "assign experts round-robin, for measuring"),

        works(COEUS_FIELD(log.ranks), "ranks whose lines appear on the terminal; LOG_RANK sets it too")
            .obeys(at_least_0),
        works(COEUS_FIELD(log.quiet), "show only warnings and errors on the terminal; --quiet sets it too"),

        works(
            COEUS_FIELD(kernels.autotune),
            "on a GPU, time the algorithms that cuBLASLt suggests for a matrix product when its shape first "
            "comes, and keep the fastest in ~/.cache/coeus/products; false: its first suggestion"),
        works(
            COEUS_FIELD(kernels.attention),
            "whose kernels do attention on a GPU: our own, or cuDNN's where it takes it (forward, bfloat16, "
            "no document mask, whole sequences); auto: cuDNN where it is found")
            .one_of({"auto", "own", "cudnn"}),

        works(
            COEUS_FIELD(profiling.kernels),
            "print at the end which kinds of kernels the time went to, beside the machine's rates; --profile "
            "sets it too"),
        works(COEUS_FIELD(profiling.enable_profiling),
              "write a trace of some steps for Perfetto, and what communication cost, for each rank"),
        works(COEUS_FIELD(profiling.save_traces_folder),
              "folder of the traces (inside dump_folder, unless absolute)"),
        works(COEUS_FIELD(profiling.profile_freq), "length of a cycle of tracing, in steps")
            .obeys(at_least_1),
        works(COEUS_FIELD(profiling.profiler_active), "number of traced steps, at the end of each cycle")
            .obeys(at_least_0),
        works(COEUS_FIELD(profiling.profiler_warmup),
              "number of steps before them that are traced and forgotten, so that buffers are warm")
            .obeys(at_least_0),
        no_effect("profiling.profiler_repeat", Type::integer, no_skipping, "number of cycles"),
        no_effect("profiling.profiler_skip_first", Type::integer, no_skipping,
                  "steps before the first cycle"),
        no_effect("profiling.profiler_skip_first_wait", Type::integer, no_skipping,
                  "leave out the idle steps of the first cycle"),
        works(COEUS_FIELD(profiling.enable_memory_snapshot),
              "write which tensors hold the memory at which time of a step, as JSON and as a picture for "
              "each rank"),
        works(COEUS_FIELD(profiling.save_memory_snapshot_folder),
              "folder of the snapshots (inside dump_folder, unless absolute)"),
        works(COEUS_FIELD(profiling.memory_snapshot_freq), "steps between snapshots")
            .obeys(at_least_1)
            .defaults_to("profile_freq"),
        works(COEUS_FIELD(profiling.memory_snapshot_max_entries),
              "number of tensors that a snapshot has room for")
            .obeys(at_least_1),

        works(COEUS_FIELD(metrics.log_freq), "log step 1 and every so many steps").obeys(at_least_1),
        works(COEUS_FIELD(metrics.enable_tensorboard), "write TensorBoard event files"),
        works(COEUS_FIELD(metrics.save_tb_folder),
              "folder of the event files (inside dump_folder, unless absolute)"),
        works(COEUS_FIELD(metrics.save_for_all_ranks),
              "write event files for every rank, each in its folder rank_N, not for rank 0 alone"),
        no_effect("metrics.enable_wandb", Type::boolean,
                  "Coeus talks to no outside service; metrics.jsonl has all figures",
                  "send metrics to wandb"),
        works(COEUS_FIELD(metrics.disable_color_printing), "print without colour on the terminal"),
        works(COEUS_FIELD(metrics.straggler_freq),
              "steps over which the times of the ranks are compared, to name those that all others wait for; "
              "0: never")
            .obeys(at_least_0),
        works(COEUS_FIELD(metrics.straggler_percent),
              "a slow rank is named where it costs so many percent of a step")
            .obeys(not_negative),
    };
}

std::vector<Option> other_options() {
    return {
        no_effect("override.imports", Type::words, no_python,
                  "Python factories that replace parts of the program"),
        works(COEUS_FIELD(comm.transport),
              "what carries tensors between GPUs: NCCL, or MPI from pinned memory of the host; auto: NCCL "
              "where it is found and each rank has a GPU of its own")
            .one_of({"auto", "nccl", "staged"}),
        works(
            COEUS_FIELD(comm.init_timeout_seconds),
            "how long one operation that waits for other ranks, a disk or data may take until the first step "
            "is done; then the run ends with a table of what each rank is at, and exit code 3")
            .obeys(at_least_1),
        works(COEUS_FIELD(comm.train_timeout_seconds), "how long one may take after the first step")
            .obeys(at_least_1),
        no_effect("comm.trace_buf_size", Type::integer, own_buffer,
                  "number of collectives that are remembered")
            .idle_at({int64_t(20000)}),
        works(COEUS_FIELD(comm.save_traces_folder),
              "folder of what each rank did last, where something did not end (inside dump_folder, unless "
              "absolute)"),
        works(COEUS_FIELD(comm.save_traces_file_prefix), "first part of these files' names"),
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

        works(COEUS_FIELD(memory_estimation.enable),
              "plan the memory instead of training, as --dry_run does"),
        no_effect("memory_estimation.disable_fake_mode", Type::boolean,
                  "the memory is planned without any tensors", "estimate it with real tensors"),
        no_effect("experimental.custom_import", Type::text, no_python, "Python module to import"),
        no_effect("experimental.custom_args_module", Type::text, no_python,
                  "Python module that extends the options"),
        no_effect("experimental.custom_model_path", Type::text, no_python, "folder of a Python model"),
        no_effect("experimental.enable_compiled_autograd", Type::boolean,
                  "kernels are compiled when Coeus is built", "use PyTorch's compiled autograd"),
    };
}

}  // namespace coeus::config
