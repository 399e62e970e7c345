// SPDX-License-Identifier: Apache-2.0
// expert_loads.jsonl and the heat map of a run: equal on all meshes, with each step once after a resume, and
// kept when another run begins in the folder.
#include "coeus/file/json.hpp"
#include "coeus/metrics/load_history.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

fs::path write_60_windows(const TemporaryFolder& folder) {
    const fs::path file = folder / "tokens.h5";
    write_token_file(file, {.tokens = learnable_tokens(60 * 17)});
    return file;
}

std::string loads_of(const fs::path& run) {
    return read_file(run / "expert_loads.jsonl");
}

}  // namespace

TEST_CASE("The loads of experts are recorded in all layers, equally on every mesh") {
    const TemporaryFolder folder;
    const fs::path data = write_60_windows(folder);
    const Arguments more =
        tiny_experts + Arguments{"--training.dtype=float64", "--model.n_layers=4", "--model.n_dense_layers=1",
                                 "--training.global_batch_size=8", "--metrics.log_freq=4"};
    train_tiny(folder / "one", data, more);
    const LoadHistory history = read_load_history(folder / "one/expert_loads.jsonl");
    REQUIRE(history.size() == 3);
    for (const auto& [layer, loads] : history) {
        CAPTURE(layer);
        CHECK((layer >= 1 && layer <= 3));
        std::vector<int64_t> steps;
        for (const auto& [step, values] : loads) {
            steps.push_back(step);
            float sum = 0;
            for (const float value : values) sum += value;
            CHECK(values.size() == 4);
            CHECK(close(sum, 4, 0.02));  // they are rounded to percent
        }
        CHECK(steps == std::vector<int64_t>{1, 4, 6});
    }
    CHECK(history.at(1) != history.at(3));
    train_tiny(folder / "stages", data, more + Arguments{"--parallelism.pipeline_parallel_degree=2"}, 2);
    CHECK(loads_of(folder / "stages") == loads_of(folder / "one"));
    train_tiny(folder / "shards", data, more, 2);
    CHECK(loads_of(folder / "shards") == loads_of(folder / "one"));
    CHECK_THAT(read_file(folder / "one/report.html"),
               Contains("<option>layer 1</option><option>layer 2</option>"));
}

TEST_CASE("Ranks that divide the experts log their loads and extra rounds, whatever is computed again") {
    const TemporaryFolder folder;
    const fs::path data = write_60_windows(folder);
    const Arguments divided = tiny_experts + Arguments{"--parallelism.expert_parallel_degree=2", steps(2),
                                                       "--training.dtype=float64"};
    const auto logged = [&](const std::string& name, const char* factor, const Arguments& more) {
        const Outcome run = train_tiny(
            folder / name, data,
            divided + more + Arguments{fmt::format("--model.non_blocking_capacity_factor={}", factor)}, 2);
        std::vector<int64_t> rounds;
        std::istringstream lines(read_file(folder / name / "metrics.jsonl"));
        for (std::string text; std::getline(lines, text);) {
            const JsonDocument line = JsonDocument::parse(text, "metrics.jsonl");
            if (!line.root().contains("loss")) continue;
            const double most = line.root().number("moe_rank_load_max");
            CHECK((most >= 1 && most < 2));
            rounds.push_back(line.root().integer("moe_extra_rounds"));
            CHECK(count_of(fmt::format("extra rounds: {}", rounds.back()), run.output) ==
                  (rounds.back() > 0 ? 1 : 0));
        }
        return rounds;
    };
    CHECK(logged("worst", "1e9", {}) == std::vector<int64_t>{0, 0});
    // A step has 2 sequences of 16 tokens on a rank, so 64 rows in each of two layers. The first round has
    // room for 16 and each later one for 4.
    const std::vector<int64_t> rounds = logged("small", "0.25", {});
    for (const int64_t count : rounds) CHECK((count >= 2 * 12 && count < 2 * 28));
    CHECK(logged("recomputed", "0.25", {"--activation_checkpoint.mode=full"}) == rounds);
    CHECK(logged("validated", "0.25", {"--validation.enable", "--validation.freq=1"}) == rounds);
    const std::string page = read_file(folder / "small/report.html");
    CHECK_THAT(page, Contains("Loads of ranks with experts<small>"));
    CHECK_THAT(page, Contains("Extra rounds of experts"));
    CHECK_THAT(run_coeus({"report", (folder / "small").string()}).output,
               Contains("Load of ranks with experts") && Contains("Extra rounds of experts"));
}

TEST_CASE(
    "After a resume, the loads of experts have each step once, and a new run keeps those of the earlier "
    "one") {
    const TemporaryFolder folder;
    const fs::path data = write_60_windows(folder), out = folder / "out", whole = folder / "whole";
    const Arguments more = tiny_experts + Arguments{"--checkpoint.enable", "--checkpoint.interval=3",
                                                    "--lr_scheduler.total_steps=7"};
    train_tiny(whole, data, more + Arguments{steps(7)});
    CHECK(count_of("\n", loads_of(whole)) == 7);
    // as if the run had been killed in step 6, while it wrote a line
    train_tiny(out, data, more + Arguments{steps(5)});
    fs::remove(out / checkpoint_of(5));
    write_file(out / "expert_loads.jsonl", loads_of(out) + "{\"step\":6,\"layers\":{\"0\":[1");
    CHECK_THAT(train_tiny(out, data, more + Arguments{steps(7)}).output, Contains("step 3, 192 tokens seen"));
    CHECK(loads_of(out) == loads_of(whole));

    // a run without experts writes no such file
    train_tiny(out, data, {steps(2)});
    CHECK(loads_of(out / "earlier_1") == loads_of(whole));
    CHECK_FALSE(fs::exists(out / "expert_loads.jsonl"));
    CHECK_THAT(read_file(out / "report.html"), !Contains("Loads of experts"));
}
