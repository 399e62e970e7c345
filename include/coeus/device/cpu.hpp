// SPDX-License-Identifier: Apache-2.0
// The CPU of this rank: number of threads, their cores, instruction sets. hwloc is used only in cpu.cpp.
#pragma once

#include <filesystem>
#include <string>

namespace coeus {

/// Threads of a rank: more is a mistake, and libraries crash when they start so many.
constexpr int most_threads = 4096;

struct CpuShare {
    int cores = 1;          ///< physical cores this process may run on
    int threads = 1;        ///< OpenMP threads this rank should use
    int sharing = 1;        ///< ranks of this host that use these cores, this one included
    int machine_cores = 1;  ///< physical cores of this host
    bool bound = false;     ///< the process is bound to a part of the machine's cores
    /// The first of this rank's own cores. -1: not pinned, because ranks share the cores or something else
    /// has bound the process.
    int first_core = -1;
    int own_cores = 0;   ///< number of its own cores; 0: not pinned
    std::string reason;  ///< explains `threads`: "2 cores / 1 rank", "OMP_NUM_THREADS"
};

/// The device of a rank, the processors near it, and the ranks that share them.
struct NearDevice {
    bool is_gpu = false;
    std::string processors;  ///< "0-31,64-95"; empty: it does not matter, or is unknown
    int ranks = 1;           ///< ranks of this host whose devices are near the same processors
    int number = 0;          ///< this rank's number among them
};
/// The processors in the NUMA node of a PCI device ("0000:1b:00.0"), as the system reports them. Tests pass
/// another folder as `root`.
std::string processors_near(const std::string& bus_id, const std::filesystem::path& root = "/");

/// Chooses the threads, and perhaps the cores, of one of `local_size` ranks on this host. The number of
/// threads is the first of these that applies:
/// - `wanted` (from the deck), if above 0
/// - OMP_NUM_THREADS; with a GPU, at most an equal share of the cores
/// - the cores that this process is bound to, divided by the `sharing` ranks of this host (this one included)
///   that are bound to the same cores
/// - an equal share of the machine's cores, or of those near the rank's device if `near` is given
///
/// A rank gets cores of its own if there are enough for every rank and nothing has bound the process yet: one
/// for each thread or, with a GPU, an equal share, since threads of CUDA, of NCCL and of the data loader need
/// some beside the threads that compute.
///
/// ConfigError if OMP_NUM_THREADS counts and is more than most_threads.
CpuShare share_of_cpu(int wanted, int local_rank, int local_size, int sharing = 1,
                      const NearDevice& near = {});
/// The cores of this host for each of the ranks that may use them, as the process is bound before apply().
/// `sharing`: as for share_of_cpu().
double cores_per_rank(int local_size, int sharing);
/// Fewer cores per rank than this are few for a rank with a GPU: for the thread that submits its work, those
/// of CUDA and of NCCL, and the data loader.
inline constexpr int cores_for_gpu = 4;
/// The processors that this process may run on: "0-7,16-23".
std::string cpu_binding();
/// True if two lists of processors have one in common, or if one of them is empty or not valid: it is
/// unknown.
bool share_processors(const std::string& list, const std::string& other);
/// Sets OpenMP's number of threads. If the share has cores of its own, binds the process to them, with its
/// compute threads and its helper threads (the data loader).
void apply(const CpuShare& share);

/// Asks Linux to run the calling thread, and threads that it starts later, in time slices of 0.1 ms instead
/// of 3 ms. Ranks that share a core often wait for each other, and a waiting thread yields the core or
/// sleeps. From Linux 6.6 on a thread that yields loses a whole slice (kernel/sched/fair.c, yield_task_fair),
/// so that ranks next to other work starve; a short slice costs little. From Linux 6.12 on a thread can
/// choose its slice (sched_setattr(2), sched_runtime). Older systems ignore the request.
void run_in_short_slices();

/// "AMD EPYC 7B13"; on aarch64 the number of the design, "CPU part 0xd4f".
std::string cpu_name();
/// The best instruction set of this processor that Coeus uses. x86-64: "avx512 bf16", "avx512", "avx2", "avx"
/// or "no avx". aarch64: "neon" or "sve", or these with " bf16". Any other processor: "unknown".
std::string cpu_vector_level();
/// True if this program was compiled for processors with AVX2; or for processors with dot products of pairs
/// of bfloat16 (AVX512-BF16, BF16 of Armv8.6).
bool built_for_avx2();
bool built_for_bf16_pairs();

}  // namespace coeus
