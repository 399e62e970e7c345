// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/start_hints.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"

#include <fmt/format.h>

#include <sys/vfs.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace coeus {

namespace {

namespace fs = std::filesystem;

std::vector<Place> places_of(const Config& config) {
    std::vector<Place> places;
    const auto add = [&](const char* option, const fs::path& path, bool is_written) {
        places.push_back({option, path.string(), file_system_of(path), is_written});
    };
    const fs::path root = config.job.dump_folder;
    add("job.dump_folder", root, true);
    if (config.checkpoint.enable && !config.checkpoint.load_only) {
        add("checkpoint.folder", root / config.checkpoint.folder, true);
        const bool inside = fs::path(config.checkpoint.folder).is_relative();
        if (inside && places[0].file_system == places[1].file_system) places.pop_back();
    }
    const auto add_data = [&](const char* option, const Words& paths) {
        if (!paths.empty()) add(option, paths[0], false);
    };
    add_data("training.dataset_path", config.training.dataset_path);
    if (config.validation.enable) add_data("validation.dataset_path", config.validation.dataset_path);
    return places;
}

// Tokens of a micro-batch that a tensor-parallel rank has.
int64_t tokens_of_rank(const Config& config) {
    const auto& p = config.parallelism;
    const int64_t sequences = p.pipeline_parallel_degree > 1 ? p.pipeline_parallel_microbatch_size
                              : p.expert_parallel_overlap    ? config.training.local_batch_size / 2
                                                             : config.training.local_batch_size;
    return sequences * config.training.seq_len / (p.context_parallel_degree * p.tensor_parallel_degree);
}

// "" if the place is fine.
std::string hint_of(const Place& place) {
    const char* const better = "a local disk or a parallel file system (Lustre, GPFS, BeeGFS)";
    const bool in_memory = place.file_system == "tmpfs" || place.file_system == "ramfs";
    const bool parallel = place.file_system == "lustre" || place.file_system == "gpfs";
    if (place.file_system.empty() || parallel || (in_memory && !place.is_written)) return "";
    if (in_memory)
        return fmt::format(
            "{} is in memory ({}): the files that the run writes there use up memory and are lost when the "
            "machine restarts; choose a folder on a disk as {}",
            place.path, place.file_system, place.option);
    return fmt::format("{} is on network storage ({}): {} may be slow there; choose {} as {}", place.path,
                       place.file_system, place.is_written ? "checkpoints" : "reading", better, place.option);
}

// On another build of this program.
void hint_at_build(std::vector<std::string>& hints, const StartFacts& facts) {
    if (facts.debug_build)
        hints.push_back("this is a debug build, many times slower than build/coeus, which `make` builds");
    if (facts.vector_level == "avx" || facts.vector_level == "no avx")
        hints.push_back(fmt::format(
            "this processor has {}: Coeus is several times faster with AVX2 (x86-64-v3) or AVX-512",
            facts.vector_level == "avx" ? "AVX but not AVX2" : "no AVX"));
    else if (facts.vector_level.starts_with("avx") && !facts.built_for_avx2)
        hints.push_back(
            "this program is built for processors without AVX2, which this one has: build it with "
            "COEUS_ARCH=native or x86-64-v3");
    else if (facts.computes_in_bf16 && facts.vector_level.ends_with(" bf16") && !facts.built_for_bf16_pairs)
        hints.push_back(
            fmt::format("this program is built for processors without {}, which this one has: attention "
                        "computes in float32, not with pairs of bfloat16; build it with COEUS_ARCH=native",
                        facts.vector_level.starts_with("avx") ? "AVX512-BF16" : "BF16 of Armv8.6"));
}

// On threads that share cores.
void hint_at_threads(std::vector<std::string>& hints, const StartFacts& facts) {
    const int sharing = facts.cpu.sharing;
    if (facts.cpu.threads * sharing > facts.cpu.cores)
        hints.push_back(
            fmt::format("{}{} {} must share {} {}: set training.threads={}{}",
                        sharing > 1 ? fmt::format("{} ranks x ", sharing) : "", facts.cpu.threads,
                        facts.cpu.threads == 1 ? "thread" : "threads", facts.cpu.cores,
                        facts.cpu.cores == 1 ? "core" : "cores", std::max(1, facts.cpu.cores / sharing),
                        sharing > facts.cpu.cores
                            ? fmt::format(" and start at most {} here", counted(facts.cpu.cores, "rank"))
                            : ""));
}

// On ranks that are bound to few cores.
void hint_at_binding(std::vector<std::string>& hints, const StartFacts& facts) {
    const int sharing = facts.cpu.sharing;
    // mpirun binds each rank of a small run to one core by default
    if (facts.cpu.bound && facts.has_gpu && facts.cpu.cores < cores_for_gpu * sharing &&
        facts.cpu.machine_cores * sharing > facts.cpu.cores * facts.local_ranks)
        hints.push_back(fmt::format(
            "{} bound to {} of this host's {} cores, but a rank with a GPU needs {}, for CUDA, NCCL and the "
            "data loader: start with mpirun --bind-to none (srun: --cpus-per-task={})",
            sharing > 1 ? fmt::format("{} ranks are", sharing) : "each rank is", facts.cpu.cores,
            facts.cpu.machine_cores, cores_for_gpu, facts.cpu.machine_cores / facts.local_ranks));
    else if (facts.cpu.bound && facts.cpu.cores == 1 && sharing == 1 &&
             facts.cpu.machine_cores >= 2 * facts.local_ranks)
        hints.push_back(fmt::format(
            "each rank is bound to 1 of this host's {} cores: start with mpirun --bind-to none (srun: "
            "--cpus-per-task={}) to use them all",
            facts.cpu.machine_cores, facts.cpu.machine_cores / facts.local_ranks));
}

// On products in parts that may be too small.
void hint_at_products(std::vector<std::string>& hints, const StartFacts& facts) {
    constexpr int64_t many_async_ranks = 8;
    if (facts.has_gpu && facts.async_ranks >= many_async_ranks)
        hints.push_back(fmt::format(
            "with parallelism.enable_async_tensor_parallel and tensor_parallel_degree = {}, a GPU computes "
            "each product in {} parts of {} tokens, which may be too few to occupy it: measure the speed "
            "with and without enable_async_tensor_parallel",
            facts.async_ranks, facts.async_ranks, facts.async_tokens));
}

// On gradients that are rounded often.
void hint_at_roundings(std::vector<std::string>& hints, const StartFacts& facts) {
    // bfloat16 has 8 significant bits: a sum of equal powers of two is exact up to this number and then stays
    // the same
    constexpr int64_t most_roundings = 256;
    if (facts.gradient_roundings > most_roundings)
        hints.push_back(fmt::format(
            "with training.gradient_dtype = \"bfloat16\", each of a step's {} micro-batches rounds the "
            "gradients: sums of more than {} terms may lose small ones; set training.gradient_dtype = "
            "\"float32\", "
            "or take fewer and larger micro-batches",
            facts.gradient_roundings, most_roundings));
}

}  // namespace

StartFacts start_facts(const CpuShare& cpu, int local_ranks, bool has_gpu, const Config& config) {
    const bool is_async = config.parallelism.enable_async_tensor_parallel;
    return {.vector_level = cpu_vector_level(),
            .built_for_avx2 = built_for_avx2(),
            .built_for_bf16_pairs = built_for_bf16_pairs(),
            .computes_in_bf16 = compute_dtype(config) == Dtype::bf16,
            .debug_build = build_type() == "Debug",
            .local_ranks = local_ranks,
            .cpu = cpu,
            .has_gpu = has_gpu,
            .async_ranks = is_async ? config.parallelism.tensor_parallel_degree : 1,
            .async_tokens = is_async ? tokens_of_rank(config) : 0,
            .places = places_of(config)};
}

int64_t gradient_roundings(const Engine& engine) {
    const EngineOptions& options = engine.options();
    // shards that are summed in each micro-batch add up in float32
    const bool keeps = options.gather.gradients == Keep::all;
    const auto& storages = engine.model().parameters().storages();
    const bool rounds = std::ranges::any_of(storages, [&](const Storage& storage) {
        return storage.g.dtype == Dtype::bf16 && (keeps || !storage.is_gathered());
    });
    return rounds ? options.accumulation * options.pipeline.timetable.microbatches : 0;
}

std::vector<std::string> start_hints(const StartFacts& facts) {
    std::vector<std::string> hints;
    hint_at_build(hints, facts);
    hint_at_threads(hints, facts);
    hint_at_binding(hints, facts);
    hint_at_products(hints, facts);
    hint_at_roundings(hints, facts);
    for (const Place& place : facts.places)
        if (std::string hint = hint_of(place); !hint.empty()) hints.push_back(std::move(hint));
    return hints;
}

std::string striping_advice(const std::string& file_system, const std::string& folder,
                            int64_t checkpoint_bytes, int64_t files) {
    constexpr double bytes_per_stripe = 1024.0 * 1024 * 1024;
    constexpr int64_t most_stripes = 64;
    if (file_system == "gpfs")
        return fmt::format(
            "{} is on GPFS, which stripes files automatically; if writing one file is slow, checkpoint.files "
            "spreads a checkpoint over several",
            folder);
    if (file_system != "lustre") return "";
    const double file_bytes = double(checkpoint_bytes) / double(std::max<int64_t>(1, files));
    const auto stripes =
        std::clamp(int64_t(std::ceil(file_bytes / bytes_per_stripe)), int64_t(1), most_stripes);
    return fmt::format(
        "{} is on Lustre: `lfs setstripe -c {} -S 4M {}` stripes a file of {} over {}; it affects only files "
        "that are created afterwards",
        folder, stripes, folder, bytes_text(file_bytes),
        stripes == 1 ? "one target" : fmt::format("{} targets", stripes));
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
        case 0x0BD00BD0: return "lustre";
        case 0x47504653: return "gpfs";
        default: return "";
    }
}

}  // namespace coeus
