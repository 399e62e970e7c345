// SPDX-License-Identifier: Apache-2.0
// What a person who looks at a run's start would remark: one line for each thing that is obviously off and
// that nothing else refuses.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/device/cpu.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

/// A file or folder of the run.
struct Place {
    std::string option;  ///< that names it
    std::string path;
    std::string file_system;  ///< as file_system_of() says
    bool is_written = true;   ///< else read
};

/// What the hints are about, of this rank and its host.
struct StartFacts {
    std::string vector_level = "avx2";  ///< as cpu_vector_level() says
    bool built_for_avx2 = true, built_for_bf16_pairs = true;
    bool computes_in_bf16 = false;
    bool debug_build = false;
    int local_ranks = 1;
    CpuShare cpu;
    std::vector<Place> places = {};
};
/// The places are dump folder, checkpoints, and the first path of the data.
StartFacts start_facts(const CpuShare& cpu, int local_ranks, const Config& config);

/// One line each, the gravest first; none where nothing is off.
std::vector<std::string> start_hints(const StartFacts& facts);

/// How files of this size should be striped in a folder of checkpoints on such a file system (as
/// file_system_of() says): on Lustre over a target for each GiB, at most 64; "" where nothing is to be said.
/// `files`: over how many a checkpoint is spread.
std::string striping_advice(const std::string& file_system, const std::string& folder,
                            int64_t checkpoint_bytes, int64_t files);

/// Of an existing path where it is one that a run should not use without need: "nfs", "smb", "afs",
/// "9p", "fuse" (mostly network storage), "tmpfs", "ramfs" (memory), or a parallel one: "lustre", "gpfs";
/// else "": local disks, other parallel file systems.
std::string file_system_of(const std::filesystem::path& path);

}  // namespace coeus
