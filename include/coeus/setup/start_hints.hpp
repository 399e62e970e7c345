// SPDX-License-Identifier: Apache-2.0
// Hints at a run's start: one line for each setting that is valid but obviously bad.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/engine/engine.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

/// A file or folder of the run.
struct Place {
    std::string option;  ///< the option that names it
    std::string path;
    std::string file_system;  ///< as file_system_of()
    bool is_written = true;   ///< false: it is only read
};

/// Facts about this rank and its host, from which the hints follow.
struct StartFacts {
    std::string vector_level = "avx2";  ///< as cpu_vector_level()
    bool built_for_avx2 = true, built_for_bf16_pairs = true;
    bool computes_in_bf16 = false;
    bool debug_build = false;
    int local_ranks = 1;
    CpuShare cpu;
    bool has_gpu = false;  ///< this rank computes on one
    /// Tensor-parallel ranks that exchange tokens while they compute, and the tokens that each of the
    /// products then has; 1 and 0: they do not.
    int64_t async_ranks = 1, async_tokens = 0;
    int64_t gradient_roundings = 0;  ///< as gradient_roundings()
    std::vector<Place> places = {};
};
/// How many micro-batches of a step add to the same gradient in bfloat16, and round it; 0: none does.
int64_t gradient_roundings(const Engine& engine);

/// The facts of this host, but for gradient_roundings. Their places are the dump folder, the checkpoint
/// folder, and the first path of the training and the validation data.
StartFacts start_facts(const CpuShare& cpu, int local_ranks, bool has_gpu, const Config& config);

/// One line each, the most important first; none if there is nothing to improve.
std::vector<std::string> start_hints(const StartFacts& facts);

/// How files in a checkpoint folder should be striped on this file system (as file_system_of()): on Lustre
/// over one target per GiB of a file, at most 64; "" for other file systems than Lustre and GPFS. `files`:
/// number of files of a checkpoint.
std::string striping_advice(const std::string& file_system, const std::string& folder,
                            int64_t checkpoint_bytes, int64_t files);

/// The file system of an existing path: one that a run should avoid, "nfs", "smb", "afs", "9p", "fuse"
/// (mostly network storage), "tmpfs", "ramfs" (memory); or a parallel one, "lustre", "gpfs"; else "" (local
/// disks, other parallel file systems, a path that does not exist).
std::string file_system_of(const std::filesystem::path& path);

}  // namespace coeus
