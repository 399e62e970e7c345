// SPDX-License-Identifier: Apache-2.0
// Options of the run itself: where it writes, what it shows and measures, how its ranks communicate.
#include "option.hpp"

namespace coeus::config {

std::vector<Option> job_options() {
    return {
        works(COEUS_FIELD(device), to_nothing,
              "Where to compute. `auto`: on a GPU if there is one and Coeus is built with CUDA, else on "
              "CPUs; a "
              "GPU that cannot be used is an error")
            .one_of({"auto", "cpu", "cuda"}),

        works(COEUS_FIELD(job.config_file), to_nothing, "The deck. The same as giving it as first argument"),
        works(COEUS_FIELD(job.dump_folder), to_nothing,
              "Folder for everything that the run writes. `{optimizer.lr}` in the name, or any other option "
              "in braces, is replaced by its value"),
        works(COEUS_FIELD(job.description), to_nothing, "Free text that is logged at the start"),
        works(
            COEUS_FIELD(job.print_config), to_nothing,
            "Print the effective deck at the start, and where each value was given. A dry run prints it too"),
        works(COEUS_FIELD(job.save_config_file), to_nothing,
              "Also write the effective deck to this file (inside `job.dump_folder` unless absolute)"),

        works(COEUS_FIELD(debug.moe_force_load_balance), to_run,
              "Assign tokens to experts in turn, whatever the router computes: for measurements"),
        works(COEUS_FIELD(debug.seed), to_nothing,
              "Seed of initial weights, data order and stochastic rounding")
            .obeys(at_least_0),

        works(COEUS_FIELD(log.ranks), to_nothing,
              "Ranks whose log lines are shown on the terminal. The environment variable `LOG_RANK` sets it "
              "too")
            .obeys(at_least_0),
        works(COEUS_FIELD(log.quiet), to_nothing,
              "Show only warnings and errors on the terminal. `--quiet` sets it too"),

        works(COEUS_FIELD(kernels.autotune), to_run,
              "On a GPU: when a matrix product of a new shape is first computed, time the algorithms that "
              "cuBLASLt suggests and keep the fastest, also for later runs (in `~/.cache/coeus/products`). "
              "`false`: use the first suggestion"),
        works(
            COEUS_FIELD(kernels.autotune_recheck), to_nothing,
            "Time every kept algorithm again when its product is first used, against cuBLASLt's first "
            "suggestion, on one rank of each pipeline stage. If it takes 5 % longer, a warning says so, and "
            "it is used nevertheless. `false`: only those that were timed more than 30 days ago. Kept "
            "choices "
            "of attention's gradients (`kernels.attention`) are not timed again"),
        works(COEUS_FIELD(kernels.sm_margin), to_run,
              "On a GPU: number of multiprocessors that cuBLASLt's products leave free for NCCL, if "
              "parameters are divided (dp_shard x cp > 1), so that products run beside NCCL's operations")
            .obeys(at_least_0),
        works(COEUS_FIELD(kernels.allow_tf32), to_run,
              "On a GPU: cuBLASLt's products of operands in float32 use tensor cores, with operands rounded "
              "to TF32 (10 bits after the binary point). Sums stay in float32"),
        works(
            COEUS_FIELD(kernels.attention), to_run,
            "Attention kernels on a GPU. `own`: those of Coeus, on Hopper with a backward by `wgmma`. `mma`: "
            "those of Coeus that every GPU has. `cudnn`: cuDNN's in the cases that it supports (bfloat16, no "
            "mask but the causal one), else `own`. `cudnn_forward`: as `cudnn`, but gradients as `own`, "
            "which saves cuDNN's workspace. `auto`: `cudnn` if cuDNN is found, but on Hopper the faster of "
            "its gradients and those of `own`, which rank 0 measures once for each shape and keeps (see "
            "`kernels.autotune`)")
            .one_of({"auto", "own", "mma", "cudnn", "cudnn_forward"}),
        works(COEUS_FIELD(kernels.deterministic), to_run,
              "Use only kernels that give the same bits each time. `false`: on a GPU, cuDNN may compute the "
              "gradients of attention with sums in any order, which is faster and needs less memory"),
        works(COEUS_FIELD(kernels.experts), to_nothing,
              "Kernel for products of experts' rows in bfloat16 on a GPU. `mma`: on every GPU. `wgmma`: on "
              "Hopper, with copies by `cp.async`. `tma`: on Hopper, `wgmma` with copies by TMA. The last two "
              "also compute products with few rows. All give the same bits. `auto`: `tma` for many rows on "
              "Hopper, else `mma`")
            .one_of({"auto", "mma", "wgmma", "tma"}),
        works(
            COEUS_FIELD(kernels.experts_in_8_bits), to_run,
            "Products of experts in Float8 with a scale for each row (`rowwise`) multiply the 8-bit numbers "
            "on GPUs from sm_89 on. `false`: the numbers are decoded to bfloat16 first")
            .defaults_to("`true`, but `false` on Hopper, where this is faster"),
        works(COEUS_FIELD(kernels.stream_priorities), to_nothing,
              "On a GPU: kernels of communication begin before blocks of the computation that wait for room. "
              "`false`: all have the same priority"),
        works(COEUS_FIELD(kernels.logits_chunk_mib), to_run,
              "Size in MiB of the chunks in which the output layer computes logits. The last bits of a run "
              "depend on it")
            .obeys(chunk_mib)
            .defaults_to("8 on a CPU; on a GPU 1024 if each rank fits into its GPU, else 256. A run that "
                         "resumes on GPUs keeps its checkpoint's if each rank fits"),

        works(COEUS_FIELD(profiling.kernels), to_nothing,
              "Print at the end how much time each kind of kernel took, and its rate compared with the "
              "machine's peak, in the last four steps (without the first two of the run). `--profile` sets "
              "it too"),
        works(COEUS_FIELD(profiling.enable_profiling), to_nothing,
              "Each rank writes a trace of some steps for Perfetto, and what communication cost in them"),
        works(COEUS_FIELD(profiling.save_traces_folder), to_nothing,
              "Folder of the traces (inside `job.dump_folder` unless absolute)"),
        works(COEUS_FIELD(profiling.profile_freq), to_nothing, "Length of a tracing cycle, in steps")
            .obeys(at_least_1),
        works(COEUS_FIELD(profiling.profiler_active), to_nothing,
              "Number of steps at the end of each cycle whose trace is written")
            .obeys(at_least_0),
        works(COEUS_FIELD(profiling.profiler_warmup), to_nothing,
              "Number of steps before these that are traced for warming up only; their trace is discarded")
            .obeys(at_least_0),
        works(COEUS_FIELD(profiling.enable_memory_snapshot), to_nothing,
              "Each rank writes which tensors are in memory at each moment of a step, as JSON and as a "
              "picture"),
        works(COEUS_FIELD(profiling.save_memory_snapshot_folder), to_nothing,
              "Folder of the memory snapshots (inside `job.dump_folder` unless absolute)"),
        works(COEUS_FIELD(profiling.memory_snapshot_freq), to_nothing,
              "Number of steps between memory snapshots")
            .obeys(at_least_1)
            .defaults_to("`profiling.profile_freq`"),
        works(COEUS_FIELD(profiling.memory_snapshot_max_entries), to_nothing,
              "Maximum number of tensors in a memory snapshot")
            .obeys(at_least_1),

        works(COEUS_FIELD(metrics.log_freq), to_nothing,
              "Log step 1 and every step whose number is a multiple of this")
            .obeys(at_least_1),
        works(COEUS_FIELD(metrics.enable_tensorboard), to_nothing, "Write TensorBoard event files"),
        works(COEUS_FIELD(metrics.save_tb_folder), to_nothing,
              "Folder of the event files (inside `job.dump_folder` unless absolute)"),
        works(COEUS_FIELD(metrics.save_for_all_ranks), to_nothing,
              "Write event files for every rank, in folders `rank_N`, instead of for rank 0 only"),
        works(COEUS_FIELD(metrics.disable_color_printing), to_nothing, "Do not use colour on the terminal"),
        works(COEUS_FIELD(metrics.straggler_freq), to_nothing,
              "Number of steps after which the ranks' times are compared, to report ranks for which all "
              "others wait. 0: never")
            .obeys(at_least_0),
        works(COEUS_FIELD(metrics.straggler_percent), to_nothing,
              "Report a rank that slows a step down by at least this many percent")
            .obeys(not_negative),
    };
}

std::vector<Option> other_options() {
    return {
        works(COEUS_FIELD(comm.transport), to_nothing,
              "How tensors travel between GPUs. `nccl`: by NCCL. `staged`: by MPI, through pinned host "
              "memory. `auto`: by NCCL if it is found and each rank has its own GPU")
            .one_of({"auto", "nccl", "staged"}),
        works(
            COEUS_FIELD(comm.deterministic), to_run,
            "NCCL's sums have the same bits in each run on the same machines: it does not sum in NVLink's "
            "switches (NVLS), whose order of summands changes. `false`: NCCL may do so, which can be faster"),
        works(
            COEUS_FIELD(comm.max_ctas), to_run,
            "Most blocks (CTAs) of a GPU that one of NCCL's operations on weights or gradients takes. Fewer "
            "leave more multiprocessors to kernels that run at the same time. 0: NCCL chooses")
            .obeys(at_least_0),
        works(
            COEUS_FIELD(comm.init_timeout_seconds), to_nothing,
            "Longest time that one operation may wait for other ranks, a disk or data before the first step "
            "is complete. After that, the run prints what each rank is doing and ends with exit code 3")
            .obeys(at_least_1),
        works(COEUS_FIELD(comm.train_timeout_seconds), to_nothing, "The same after the first step")
            .obeys(at_least_1),
        works(COEUS_FIELD(comm.save_traces_folder), to_nothing,
              "Folder for each rank's last operations, written if one of them does not end (inside "
              "`job.dump_folder` unless absolute)"),
        works(COEUS_FIELD(comm.save_traces_file_prefix), to_nothing, "Beginning of the names of these files"),

        works(COEUS_FIELD(memory_estimation.enable), to_run,
              "Plan the memory instead of training, as `--dry_run` does"),
    };
}

}  // namespace coeus::config
