// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/hints.hpp"

#include "coeus/base/version.hpp"

#include <fmt/format.h>

#include <sys/vfs.h>

#include <algorithm>
#include <cstdint>

namespace coeus {

StartFacts start_facts(const CpuShare& cpu, int local_ranks, const std::filesystem::path& dump_folder) {
    return {.vector_level = cpu_vector_level(),
            .built_for_avx2 = built_for_avx2(),
            .debug_build = build_type() == "Debug",
            .local_ranks = local_ranks,
            .cpu = cpu,
            .dump_folder = dump_folder.string(),
            .file_system = file_system_of(dump_folder)};
}

std::vector<std::string> start_hints(const StartFacts& facts) {
    std::vector<std::string> hints;
    if (facts.debug_build)
        hints.push_back("this is a debug build, many times slower than build/coeus, which `make` builds");
    if (!facts.vector_level.starts_with("avx2") && !facts.vector_level.starts_with("avx512"))
        hints.push_back(fmt::format(
            "this processor has {}: Coeus is several times faster with AVX2 (x86-64-v3) or AVX-512",
            facts.vector_level == "avx" ? "AVX but not AVX2" : "no AVX"));
    else if (!facts.built_for_avx2)
        hints.push_back(
            "this program is built for processors without AVX2, which this one has: build it with "
            "COEUS_ARCH=native or x86-64-v3");
    const int sharing = facts.cpu.sharing;
    if (facts.cpu.threads * sharing > facts.cpu.cores)
        hints.push_back(fmt::format(
            "{}{} {} on {} {} take turns: set training.threads={}{}",
            sharing > 1 ? fmt::format("{} ranks x ", sharing) : "", facts.cpu.threads,
            facts.cpu.threads == 1 ? "thread" : "threads", facts.cpu.cores,
            facts.cpu.cores == 1 ? "core" : "cores", std::max(1, facts.cpu.cores / sharing),
            sharing > facts.cpu.cores ? fmt::format(" and start at most {} ranks here", facts.cpu.cores)
                                      : ""));
    // mpirun binds each rank of a small run to one core unless it is told otherwise
    if (facts.cpu.bound && facts.cpu.cores == 1 && sharing == 1 &&
        facts.cpu.machine_cores >= 2 * facts.local_ranks)
        hints.push_back(fmt::format(
            "each rank is bound to 1 of this host's {} cores: start with mpirun --bind-to none (srun: "
            "--cpus-per-task={}) to use them all",
            facts.cpu.machine_cores, facts.cpu.machine_cores / facts.local_ranks));
    if (facts.file_system == "tmpfs" || facts.file_system == "ramfs")
        hints.push_back(fmt::format(
            "{} lies in memory ({}): what the run writes takes memory from it and is lost when the "
            "machine restarts; choose a folder on a disk as job.dump_folder",
            facts.dump_folder, facts.file_system));
    else if (!facts.file_system.empty())
        hints.push_back(fmt::format(
            "{} lies on network storage ({}): checkpoints may be slow there; choose a local disk or "
            "a parallel file system (Lustre, GPFS, BeeGFS) as job.dump_folder",
            facts.dump_folder, facts.file_system));
    return hints;
}

std::string file_system_of(const std::filesystem::path& path) {
    struct statfs found {};
    if (statfs(path.c_str(), &found) != 0) return "";
    // numbers of statfs(2)
    switch (uint32_t(found.f_type)) {
        case 0x6969: return "nfs";
        case 0x517B:
        case 0xFF534D42:
        case 0xFE534D42: return "smb";
        case 0x5346414F: return "afs";
        case 0x01021997: return "9p";
        case 0x65735546: return "fuse";
        case 0x01021994: return "tmpfs";
        case 0x858458F6: return "ramfs";
        default: return "";
    }
}

}  // namespace coeus
