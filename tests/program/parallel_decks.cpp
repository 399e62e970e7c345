// SPDX-License-Identifier: Apache-2.0
// Every deck of tests/decks trains on the ranks of its degrees as it does on one rank: with all digits in
// float64, approximately in bfloat16. mpi/train has each mesh with each pair of choices
// (tests/support/mesh_factors.cpp); these decks show that options of a deck choose them. Paths in the decks
// are relative to the repository's root, where they run.
#include "coeus/file/toml.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <algorithm>
#include <map>
#include <sstream>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> degrees = {
    "parallelism.pipeline_parallel_degree", "parallelism.data_parallel_replicate_degree",
    "parallelism.data_parallel_shard_degree", "parallelism.context_parallel_degree",
    "parallelism.tensor_parallel_degree"};

int ranks_for(const fs::path& deck) {
    int64_t ranks = 1;
    for (const TomlEntry& entry : read_toml(deck))
        if (std::find(degrees.begin(), degrees.end(), entry.key) != degrees.end())
            ranks *= *entry.value.as<int64_t>();
    return int(ranks);
}

std::vector<fs::path> all_decks() {
    std::vector<fs::path> decks;
    for (const auto& entry : fs::directory_iterator(fs::path(paths::source()) / "tests/decks"))
        if (entry.path().extension() == ".toml" && !entry.path().stem().string().starts_with("base"))
            decks.push_back(entry.path());
    std::sort(decks.begin(), decks.end());
    return decks;
}

MetricLines run_deck(const fs::path& deck, const fs::path& out, const fs::path& data, const Arguments& more,
                     int ranks) {
    const Outcome run = run_coeus(Arguments{"train", deck.string(), "--job.dump_folder=" + out.string(),
                                            "--training.dataset_path=" + data.string()} +
                                      more,
                                  ranks, {}, paths::source());
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK(count_of("not implemented yet", run.output) == 0);
    return read_metrics(out);
}

// Options that run the same deck on one rank.
Arguments on_one_rank() {
    Arguments arguments;
    for (const std::string& degree : degrees) arguments.push_back("--" + degree + "=1");
    for (const char* of_experts : {"expert_parallel_degree", "expert_tensor_parallel_degree"})
        arguments.push_back(fmt::format("--parallelism.{}=1", of_experts));
    return arguments;
}

struct Tolerances {
    double loss, grad_norm;
};
// In bfloat16 the norms agree to 7e-5. If gradients were not summed over an axis, even if only those of the
// norm layers over tensor-parallel ranks, they would change by 2e-2 or more.
constexpr Tolerances in_float64 = {1e-11, 1e-9}, in_bfloat16 = {2e-3, 1e-3};

void compare(const MetricLines& is, const MetricLines& should, const Tolerances& allowed) {
    REQUIRE(is.steps.size() == should.steps.size());
    REQUIRE(is.validations.size() == should.validations.size());
    for (size_t i = 0; i < is.steps.size(); ++i) {
        CAPTURE(i);
        CHECK(relatively_close(is.steps[i].loss, should.steps[i].loss, allowed.loss));
        CHECK(relatively_close(is.steps[i].grad_norm, should.steps[i].grad_norm, allowed.grad_norm));
        CHECK(is.steps[i].tokens_seen == should.steps[i].tokens_seen);
    }
    for (size_t i = 0; i < is.validations.size(); ++i)
        CHECK(relatively_close(is.validations[i].loss, should.validations[i].loss, allowed.loss));
}

}  // namespace

namespace {

// The lines of a deck without those of [parallelism]: decks in which they are equal are equal on one rank.
std::string settings_besides_mesh(const fs::path& deck) {
    std::istringstream lines(read_file(deck));
    std::string settings, section;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("[")) section = line;
        if (section != "[parallelism]" && !line.starts_with("#")) settings += line + "\n";
    }
    return settings;
}

// Trains each of these decks on its mesh and on one rank.
void compare_decks(bool (*wanted)(const std::string& name), size_t at_least) {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5",
                     {.tokens = learnable_tokens(200 * 33), .documents = {0, 100, 4000, 6600}});
    std::map<std::string, MetricLines> known;  // runs on one rank
    size_t compared = 0;
    for (const fs::path& deck : all_decks()) {
        if (!wanted(deck.stem())) continue;
        ++compared;
        CAPTURE(deck.filename().string());
        const auto check = [&](const std::string& name, const Arguments& more, const Tolerances& allowed) {
            const fs::path root = folder / deck.stem().string();
            const std::string settings = name + settings_besides_mesh(deck);
            if (!known.contains(settings))
                known[settings] =
                    run_deck(deck, root / ("one" + name), folder / "tokens.h5", more + on_one_rank(), 0);
            compare(run_deck(deck, root / ("mesh" + name), folder / "tokens.h5", more, ranks_for(deck)),
                    known[settings], allowed);
        };
        check("", {}, in_float64);
        check("16",
              {"--training.dtype=float32", "--training.mixed_precision_param=bfloat16", "--training.steps=2"},
              in_bfloat16);
    }
    CHECK(compared >= at_least);
}

bool has(const std::string& name, const char* part) {
    return name.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every deck of tests/decks trains as one rank does: pipelines") {
    compare_decks([](const std::string& name) { return has(name, "pp"); }, 2);
}
TEST_CASE("every deck of tests/decks trains as one rank does: experts on several ranks") {
    compare_decks([](const std::string& name) { return has(name, "experts"); }, 3);
}
TEST_CASE("every deck of tests/decks trains as one rank does: context parallel") {
    compare_decks([](const std::string& name) { return has(name, "cp") && !has(name, "pp"); }, 4);
}
TEST_CASE("every deck of tests/decks trains as one rank does: data and tensor parallel") {
    compare_decks(
        [](const std::string& name) { return !has(name, "cp") && !has(name, "pp") && !has(name, "experts"); },
        5);
}

TEST_CASE("a mesh resumes where it stopped, and another mesh continues from there") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(200 * 33)});
    const fs::path deck = fs::path(paths::source()) / "tests/decks/full_checkpoint.toml";
    const auto run = [&](const std::string& name, int64_t last, const Arguments& more, int ranks) {
        return run_deck(
            deck, folder / name, folder / "tokens.h5",
            more + Arguments{"--training.steps=" + std::to_string(last), "--lr_scheduler.total_steps=6"},
            ranks);
    };
    const MetricLines whole = run("whole", 6, on_one_rank(), 0);
    run("moved", 2, {}, 4);
    run("moved", 4, on_one_rank() + Arguments{"--parallelism.tensor_parallel_degree=4"}, 4);
    const MetricLines moved = run(
        "moved", 6,
        on_one_rank() + Arguments{"--parallelism.data_parallel_replicate_degree=2",
                                  "--parallelism.data_parallel_shard_degree=2",
                                  "--parallelism.tensor_parallel_degree=2", "--training.local_batch_size=1"},
        8);
    compare(moved, whole, in_float64);
}

TEST_CASE("experts on several ranks resume on other meshes with the same losses") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(200 * 33)});
    const fs::path deck = fs::path(paths::source()) / "tests/decks/experts_fsdp.toml";
    const auto run = [&](const std::string& name, int64_t last, const Arguments& more, int ranks) {
        return run_deck(deck, folder / name, folder / "tokens.h5",
                        Arguments{"--training.steps=" + std::to_string(last), "--lr_scheduler.total_steps=10",
                                  "--checkpoint.enable", "--checkpoint.interval=2"} +
                            on_one_rank() + more,
                        ranks);
    };
    const auto degree = [](const char* name, int value) {
        return fmt::format("--parallelism.{}={}", name, value);
    };
    const Arguments shards_2 = {degree("data_parallel_shard_degree", 2)},
                    tp_2 = {degree("tensor_parallel_degree", 2)};
    const MetricLines whole = run("whole", 10, {}, 0);
    run("moved", 2, {degree("data_parallel_shard_degree", 4), degree("expert_parallel_degree", 4)}, 4);
    run("moved", 4, shards_2 + Arguments{"--checkpoint.async_mode=async"}, 2);
    run("moved", 6,
        shards_2 + tp_2 +
            Arguments{degree("expert_parallel_degree", 2), degree("expert_tensor_parallel_degree", 2)},
        4);
    run("moved", 8,
        shards_2 + Arguments{degree("pipeline_parallel_degree", 2), degree("expert_parallel_degree", 2)}, 4);
    const MetricLines moved =
        run("moved", 10,
            shards_2 + tp_2 +
                Arguments{degree("data_parallel_replicate_degree", 2), degree("expert_parallel_degree", 4),
                          "--training.local_batch_size=1"},
            8);
    compare(moved, whole, in_float64);
}
