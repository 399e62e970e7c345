// SPDX-License-Identifier: Apache-2.0
// Options of the run as such: where it writes, what it shows and measures, how its ranks communicate.
#include "option.hpp"

namespace coeus::config {

std::vector<Option> job_options() {
    return {
        works(COEUS_FIELD(device), to_nothing,
              "where to compute; auto: a GPU where there is one and Coeus is built for it")
            .one_of({"auto", "cpu", "cuda"}),

        works(COEUS_FIELD(job.config_file), to_nothing, "the deck; the same as giving it as first argument"),
        works(COEUS_FIELD(job.dump_folder), to_nothing,
              "folder of everything the run writes; {optimizer.lr} in it becomes that option's value"),
        works(COEUS_FIELD(job.description), to_nothing, "free text, said at the start"),
        works(COEUS_FIELD(job.print_config), to_nothing,
              "print the effective deck at the start, and where its values were given; also in a dry run"),
        works(COEUS_FIELD(job.save_config_file), to_nothing,
              "also write the effective deck to this file (inside dump_folder, unless absolute)"),

        works(COEUS_FIELD(debug.seed), to_nothing,
              "seed of initial weights, data order and stochastic rounding")
            .obeys(at_least_0),

        works(COEUS_FIELD(log.ranks), to_nothing,
              "ranks whose lines appear on the terminal; LOG_RANK sets it too")
            .obeys(at_least_0),
        works(COEUS_FIELD(log.quiet), to_nothing,
              "show only warnings and errors on the terminal; --quiet sets it too"),

        works(
            COEUS_FIELD(kernels.autotune), to_run,
            "on a GPU, time the algorithms that cuBLASLt suggests for a matrix product when its shape first "
            "comes, and keep the fastest in ~/.cache/coeus/products; false: its first suggestion"),
        works(
            COEUS_FIELD(kernels.attention), to_run,
            "whose kernels do attention on a GPU: our own, or cuDNN's where it takes it (forward, bfloat16, "
            "no document mask, whole sequences); auto: cuDNN where it is found")
            .one_of({"auto", "own", "cudnn"}),

        works(
            COEUS_FIELD(profiling.kernels), to_nothing,
            "print at the end which kinds of kernels the time went to, beside the machine's rates; --profile "
            "sets it too"),
        works(COEUS_FIELD(profiling.enable_profiling), to_nothing,
              "write a trace of some steps for Perfetto, and what communication cost, for each rank"),
        works(COEUS_FIELD(profiling.save_traces_folder), to_nothing,
              "folder of the traces (inside dump_folder, unless absolute)"),
        works(COEUS_FIELD(profiling.profile_freq), to_nothing, "length of a cycle of tracing, in steps")
            .obeys(at_least_1),
        works(COEUS_FIELD(profiling.profiler_active), to_nothing,
              "number of traced steps, at the end of each cycle")
            .obeys(at_least_0),
        works(COEUS_FIELD(profiling.profiler_warmup), to_nothing,
              "number of steps before them that are traced and forgotten, so that buffers are warm")
            .obeys(at_least_0),
        works(COEUS_FIELD(profiling.enable_memory_snapshot), to_nothing,
              "write which tensors hold the memory at which time of a step, as JSON and as a picture for "
              "each rank"),
        works(COEUS_FIELD(profiling.save_memory_snapshot_folder), to_nothing,
              "folder of the snapshots (inside dump_folder, unless absolute)"),
        works(COEUS_FIELD(profiling.memory_snapshot_freq), to_nothing, "steps between snapshots")
            .obeys(at_least_1)
            .defaults_to("profile_freq"),
        works(COEUS_FIELD(profiling.memory_snapshot_max_entries), to_nothing,
              "number of tensors that a snapshot has room for")
            .obeys(at_least_1),

        works(COEUS_FIELD(metrics.log_freq), to_nothing, "log step 1 and every so many steps")
            .obeys(at_least_1),
        works(COEUS_FIELD(metrics.enable_tensorboard), to_nothing, "write TensorBoard event files"),
        works(COEUS_FIELD(metrics.save_tb_folder), to_nothing,
              "folder of the event files (inside dump_folder, unless absolute)"),
        works(COEUS_FIELD(metrics.save_for_all_ranks), to_nothing,
              "write event files for every rank, each in its folder rank_N, not for rank 0 alone"),
        works(COEUS_FIELD(metrics.disable_color_printing), to_nothing,
              "print without colour on the terminal"),
        works(COEUS_FIELD(metrics.straggler_freq), to_nothing,
              "steps over which the times of the ranks are compared, to name those that all others wait for; "
              "0: never")
            .obeys(at_least_0),
        works(COEUS_FIELD(metrics.straggler_percent), to_nothing,
              "a slow rank is named where it costs so many percent of a step")
            .obeys(not_negative),
    };
}

std::vector<Option> other_options() {
    return {
        works(COEUS_FIELD(comm.transport), to_nothing,
              "what carries tensors between GPUs: NCCL, or MPI from pinned memory of the host; auto: NCCL "
              "where it is found and each rank has a GPU of its own")
            .one_of({"auto", "nccl", "staged"}),
        works(
            COEUS_FIELD(comm.init_timeout_seconds), to_nothing,
            "how long one operation that waits for other ranks, a disk or data may take until the first step "
            "is done; then the run ends with a table of what each rank is at, and exit code 3")
            .obeys(at_least_1),
        works(COEUS_FIELD(comm.train_timeout_seconds), to_nothing,
              "how long one may take after the first step")
            .obeys(at_least_1),
        works(COEUS_FIELD(comm.save_traces_folder), to_nothing,
              "folder of what each rank did last, where something did not end (inside dump_folder, unless "
              "absolute)"),
        works(COEUS_FIELD(comm.save_traces_file_prefix), to_nothing, "first part of these files' names"),

        works(COEUS_FIELD(memory_estimation.enable), to_run,
              "plan the memory instead of training, as --dry_run does"),
    };
}

}  // namespace coeus::config
