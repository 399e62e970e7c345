// SPDX-License-Identifier: Apache-2.0
// The hints that a start logs, by its facts.
#include "coeus/setup/start_hints.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// A host with 8 cores and no problems.
StartFacts good_facts() {
    return {.local_ranks = 2, .cpu = {.cores = 8, .threads = 4, .sharing = 2, .machine_cores = 8}};
}

std::string only_hint(const StartFacts& facts) {
    const std::vector<std::string> hints = start_hints(facts);
    CAPTURE(hints);
    REQUIRE(hints.size() == 1);
    CHECK(hints[0].find('\n') == std::string::npos);
    return hints[0];
}

}  // namespace

TEST_CASE("hints: there are none without problems") {
    StartFacts facts = good_facts();
    for (const char* level : {"avx2", "avx512", "avx512 bf16"}) {
        facts.vector_level = level;
        CHECK(start_hints(facts).empty());
    }
}

TEST_CASE("hints: vector instructions") {
    StartFacts facts = good_facts();
    facts.vector_level = "no avx";
    CHECK_THAT(only_hint(facts), Contains("this processor has no AVX"));
    facts.built_for_avx2 = false;  // no second hint: the processor does not have it
    CHECK_THAT(only_hint(facts), Contains("this processor has no AVX"));
    facts.vector_level = "avx";
    CHECK_THAT(only_hint(facts), Contains("this processor has AVX but not AVX2"));
    facts.vector_level = "avx512";
    CHECK_THAT(only_hint(facts), Contains("built for processors without AVX2") && Contains("COEUS_ARCH"));
    facts.vector_level = "neon bf16";
    CHECK(start_hints(facts).empty());
    // pairs of bfloat16: a hint only if the processor has them and they would be used
    facts = good_facts();
    facts.built_for_bf16_pairs = false;
    facts.vector_level = "avx512 bf16";
    CHECK(start_hints(facts).empty());
    facts.computes_in_bf16 = true;
    CHECK_THAT(only_hint(facts), Contains("without AVX512-BF16") && Contains("COEUS_ARCH=native"));
    facts.vector_level = "sve bf16";
    CHECK_THAT(only_hint(facts), Contains("without BF16 of Armv8.6") && Contains("COEUS_ARCH=native"));
    for (const char* level : {"avx512", "sve"}) {
        facts.vector_level = level;
        CHECK(start_hints(facts).empty());
    }
}

TEST_CASE("hints: a debug build") {
    StartFacts facts = good_facts();
    facts.debug_build = true;
    CHECK_THAT(only_hint(facts), Contains("debug build"));
}

TEST_CASE("hints: more threads than cores") {
    StartFacts facts = good_facts();
    facts.local_ranks = facts.cpu.sharing = 4;
    CHECK(only_hint(facts) == "4 ranks x 4 threads must share 8 cores: set training.threads=2");
    facts.local_ranks = facts.cpu.sharing = 16;
    facts.cpu.threads = 1;
    CHECK(only_hint(facts) ==
          "16 ranks x 1 thread must share 8 cores: set training.threads=1 and start at most 8 ranks here");
    facts.local_ranks = facts.cpu.sharing = 1;
    facts.cpu.threads = 9;
    CHECK(only_hint(facts) == "9 threads must share 8 cores: set training.threads=8");
    // bound ranks: each has its own cores
    facts = {.local_ranks = 8, .cpu = {.cores = 1, .threads = 1, .machine_cores = 8, .bound = true}};
    CHECK(start_hints(facts).empty());
    facts.cpu.threads = 2;
    CHECK(only_hint(facts) == "2 threads must share 1 core: set training.threads=1");
    // four ranks of this host, bound to the same two cores
    facts = {.local_ranks = 8,
             .cpu = {.cores = 2, .threads = 1, .sharing = 4, .machine_cores = 4, .bound = true}};
    CHECK(only_hint(facts) ==
          "4 ranks x 1 thread must share 2 cores: set training.threads=1 and start at most 2 ranks here");
}

TEST_CASE("hints: cores that stay idle because the launcher bound each rank to one") {
    StartFacts facts = {.local_ranks = 2,
                        .cpu = {.cores = 1, .threads = 1, .machine_cores = 64, .bound = true}};
    CHECK(only_hint(facts) ==
          "each rank is bound to 1 of this host's 64 cores: start with mpirun --bind-to none (srun: "
          "--cpus-per-task=32) to use them all");
    facts.cpu.machine_cores = 3;
    CHECK(start_hints(facts).empty());
}

TEST_CASE("hints: products of few tokens") {
    Config config;
    config.training.local_batch_size = 4;
    config.training.seq_len = 4096;
    config.parallelism.tensor_parallel_degree = 8;
    const auto hints_of = [&](bool has_gpu) {
        StartFacts facts = good_facts();
        const StartFacts found = start_facts(facts.cpu, facts.local_ranks, has_gpu, config);
        facts.has_gpu = has_gpu;
        facts.async_ranks = found.async_ranks;
        facts.async_tokens = found.async_tokens;
        return start_hints(facts);
    };
    CHECK(hints_of(true).empty());
    config.parallelism.enable_async_tensor_parallel = true;
    CHECK(hints_of(true) == std::vector<std::string>{
                                "with parallelism.enable_async_tensor_parallel and tensor_parallel_degree = "
                                "8, a GPU computes each product in 8 parts of 2048 tokens, which may be too "
                                "few to occupy it: measure the speed with and without "
                                "enable_async_tensor_parallel"});
    CHECK(hints_of(false).empty());
    config.parallelism.tensor_parallel_degree = 16;
    config.parallelism.context_parallel_degree = 2;
    config.parallelism.pipeline_parallel_degree = 2;  // one sequence a micro-batch
    REQUIRE(hints_of(true).size() == 1);
    CHECK_THAT(hints_of(true)[0], Contains("16 parts of 128 tokens"));
    config.parallelism.tensor_parallel_degree = 4;
    CHECK(hints_of(true).empty());
}

TEST_CASE("hints: gradients in bfloat16 that many micro-batches round") {
    EngineOptions options;
    options.types = {.master = Dtype::f32, .compute = Dtype::bf16, .gradients_in_bf16 = true};
    options.training = {.sequences = 2, .seq_len = 8};
    options.accumulation = 257;
    const auto roundings = [&] { return gradient_roundings(Engine(tiny_config(2), options)); };
    CHECK(roundings() == 257);
    options.mesh = {.dp_replicate = 2};
    CHECK(roundings() == 257);
    options.mesh = {.dp_shard = 2};
    CHECK(roundings() == 0);
    options.gather.gradients = Keep::all;
    CHECK(roundings() == 257);
    options.mesh = {.pp = 2};
    options.pipeline.timetable = find_schedule("GPipe")->timetable({.ranks = 2, .microbatches = 2});
    options.pipeline.parts = ModelConfig(tiny_config(2))->split(2, {});
    CHECK(roundings() == 2 * 257);
    options.types.gradients_in_bf16 = false;
    CHECK(roundings() == 0);

    StartFacts facts = good_facts();
    facts.gradient_roundings = 256;
    CHECK(start_hints(facts).empty());
    facts.gradient_roundings = 257;
    CHECK(only_hint(facts) ==
          "with training.gradient_dtype = \"bfloat16\", each of a step's 257 micro-batches rounds the "
          "gradients: sums of more than 256 terms may lose small ones; set training.gradient_dtype = "
          "\"float32\", or "
          "take fewer and larger micro-batches");
}

TEST_CASE("hints: few cores for a rank with a GPU") {
    StartFacts facts = {.local_ranks = 8,
                        .cpu = {.cores = 1, .threads = 1, .machine_cores = 64, .bound = true},
                        .has_gpu = true};
    CHECK(
        only_hint(facts) ==
        "each rank is bound to 1 of this host's 64 cores, but a rank with a GPU needs 4, for CUDA, NCCL and "
        "the data loader: start with mpirun --bind-to none (srun: --cpus-per-task=8)");
    facts.cpu.cores = 3;
    CHECK_THAT(only_hint(facts), Contains("each rank is bound to 3 of this host's 64 cores"));
    facts.cpu.cores = 4;
    CHECK(start_hints(facts).empty());
    facts.cpu.sharing = 2;  // of a core of another rank's
    CHECK_THAT(only_hint(facts), Contains("2 ranks are bound to 4 of this host's 64 cores"));
    // the host has no more
    facts.cpu = {.cores = 1, .threads = 1, .machine_cores = 8, .bound = true};
    CHECK(start_hints(facts).empty());
    // unbound ranks share all cores
    facts.cpu = {.cores = 8, .threads = 1, .sharing = 8, .machine_cores = 8};
    CHECK(start_hints(facts).empty());
}

TEST_CASE("hints: slow storage for what the run writes and reads") {
    StartFacts facts = good_facts();
    for (const char* name : {"nfs", "smb", "fuse", "9p", "afs"}) {
        facts.places = {{"job.dump_folder", "out", name}};
        CHECK_THAT(only_hint(facts), Contains(std::string("out is on network storage (") + name +
                                              "): checkpoints may be slow") &&
                                         Contains("job.dump_folder"));
        facts.places = {{"job.dump_folder", "out", ""}, {"training.dataset_path", "data", name, false}};
        CHECK_THAT(only_hint(facts),
                   Contains(std::string("data is on network storage (") + name + "): reading may be slow") &&
                       Contains("training.dataset_path"));
    }
    facts.places = {{"job.dump_folder", "out", ""}, {"checkpoint.folder", "/x", "tmpfs"}};
    CHECK_THAT(only_hint(facts), Contains("/x is in memory (tmpfs)") && Contains("checkpoint.folder"));
    facts.places = {{"training.dataset_path", "data", "tmpfs", false}};  // fast to read
    CHECK(start_hints(facts).empty());
    CHECK(file_system_of("/dev/shm") == "tmpfs");
    CHECK(file_system_of("/absent").empty());
}

TEST_CASE("hints: checkpoints on parallel file systems") {
    constexpr int64_t gib = int64_t(1) << 30;
    CHECK(striping_advice("lustre", "out/checkpoint", 96 * gib / 10, 1) ==
          "out/checkpoint is on Lustre: `lfs setstripe -c 10 -S 4M out/checkpoint` stripes a file of 9.60 "
          "GiB over 10 targets; it affects only files that are created afterwards");
    CHECK_THAT(striping_advice("lustre", "c", 1000, 1), Contains("-c 1 ") && Contains("over one target; "));
    CHECK_THAT(striping_advice("lustre", "c", 16 * gib, 4), Contains("-c 4 ") && Contains("of 4.00 GiB"));
    CHECK_THAT(striping_advice("lustre", "c", 900 * gib, 1), Contains("-c 64 "));
    CHECK_THAT(striping_advice("gpfs", "c", 16 * gib, 1),
               Contains("GPFS, which stripes files automatically") && Contains("checkpoint.files"));
    for (const char* other : {"", "nfs", "tmpfs"}) CHECK(striping_advice(other, "c", gib, 1).empty());
    // these file systems themselves cause no hint
    StartFacts facts = good_facts();
    facts.places = {{"job.dump_folder", "out", "lustre"}, {"checkpoint.folder", "c", "gpfs"}};
    CHECK(start_hints(facts).empty());
}

TEST_CASE("hints: several, the most important first") {
    StartFacts facts = good_facts();
    facts.debug_build = true;
    facts.vector_level = "no avx";
    facts.local_ranks = facts.cpu.sharing = 3;
    facts.places = {{"job.dump_folder", "out", "nfs"}};
    const std::vector<std::string> hints = start_hints(facts);
    REQUIRE(hints.size() == 4);
    CHECK_THAT(hints[0], Contains("debug build"));
    CHECK_THAT(hints[3], Contains("network storage"));
}

TEST_CASE("hints: the facts of this process") {
    const test::TemporaryFolder folder;
    const CpuShare cpu = {.cores = 2, .threads = 3};
    Config config;
    config.job.dump_folder = folder.path().string();
    config.training.dataset_path = {(folder / "a.h5").string(), "b.h5"};
    config.validation.dataset_path = {"c.h5"};
    config.checkpoint.enable = true;
    config.checkpoint.folder = "checkpoint";
    const auto options_of = [&] {
        Words options;
        for (const Place& place : start_facts(cpu, 5, false, config).places) options.push_back(place.option);
        return options;
    };
    std::filesystem::create_directory(folder / "checkpoint");
    std::filesystem::create_directory(folder / "elsewhere");
    CHECK(options_of() == Words{"job.dump_folder", "training.dataset_path"});
    config.checkpoint.folder = (folder / "elsewhere").string();
    config.validation.enable = true;
    CHECK(options_of() ==
          Words{"job.dump_folder", "checkpoint.folder", "training.dataset_path", "validation.dataset_path"});
    const StartFacts facts = start_facts(cpu, 5, true, config);
    CHECK(facts.has_gpu);
    CHECK(facts.computes_in_bf16);
    CHECK(facts.places[1].path == config.checkpoint.folder);
    CHECK(facts.places[2].path == config.training.dataset_path[0]);
    CHECK_FALSE(facts.places[2].is_written);
    CHECK(facts.vector_level == cpu_vector_level());
    CHECK(facts.local_ranks == 5);
    CHECK(facts.cpu.threads == 3);
    CHECK(facts.places[0].path == folder.path().string());
    CHECK(facts.places[0].file_system == file_system_of(folder.path()));
}
