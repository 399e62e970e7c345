// SPDX-License-Identifier: Apache-2.0
// The CPU of this rank: how many threads, on which cores. hwloc stays in cpu.cpp.
#pragma once

#include <filesystem>
#include <string>

namespace coeus {

struct CpuShare {
    int cores = 1;          ///< physical cores this process may run on
    int threads = 1;        ///< OpenMP threads this rank should use
    int sharing = 1;        ///< ranks of this host that use these cores, this one counted
    int machine_cores = 1;  ///< of this host
    bool bound = false;     ///< something else has given this process its cores, fewer than the machine's
    int first_core =
        -1;  ///< first of this rank's own cores; -1: not pinned, the ranks share or something else bound it
    std::string reason;  ///< why so many: "2 cores / 1 rank", "OMP_NUM_THREADS"
};

/// The processors near a device of this host, and who shares them.
struct NearDevice {
    std::string processors;  ///< "0-31,64-95"; "": it does not matter, or nobody knows
    int ranks = 1;           ///< of this host whose devices are near the same
    int number = 0;          ///< of this rank among them
};
/// What the system says of a PCI device ("0000:1b:00.0"): the processors of its NUMA node. `root` stands for
/// "/" in tests.
std::string processors_near(const std::string& bus_id, const std::filesystem::path& root = "/");

/// Threads for one of `local_size` ranks on this host: `wanted` if > 0 (the deck), else OMP_NUM_THREADS, else
/// the cores this process is bound to, shared with the `sharing` ranks of this host (this one counts) that
/// are bound to the same, else an equal share of the machine's cores. Cores are chosen where every rank can
/// have its own and nothing has bound the process yet; near the rank's device, if that is given.
CpuShare share_of_cpu(int wanted, int local_rank, int local_size, int sharing = 1,
                      const NearDevice& near = {});
/// The processors this process may run on: "0-7,16-23".
std::string cpu_binding();
/// Sets OpenMP's number of threads and, where the share has cores of its own, binds the process to them:
/// compute threads and helpers (the data loader) alike.
void apply(const CpuShare& share);

/// Asks Linux to run the calling thread, and those that it starts later, in time slices of 0.1 ms instead of
/// 3 ms. Ranks that share a core wait for each other often, and a thread that waits yields the core or
/// sleeps. From Linux 6.6 on a thread that yields loses a whole slice (kernel/sched/fair.c, yield_task_fair),
/// so that ranks beside other work starve; a short slice costs little. From 6.12 on a thread can choose its
/// slice (sched_setattr(2), sched_runtime). Older systems ignore it.
void run_in_short_slices();

/// "AMD EPYC 7B13"; of aarch64 the number of its design, "CPU part 0xd4f"
std::string cpu_name();
/// The best instruction set of this processor that Coeus uses: "avx512 bf16", "avx512", "avx2", "avx" or "no
/// avx". An aarch64 processor has "neon" or "sve", and these with " bf16". Any other processor is "unknown".
std::string cpu_vector_level();
/// True if this program was compiled for processors with AVX2; with dot products of pairs of bfloat16
/// (AVX512-BF16, BF16 of Armv8.6).
bool built_for_avx2();
bool built_for_bf16_pairs();

}  // namespace coeus
