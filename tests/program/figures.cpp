// SPDX-License-Identifier: Apache-2.0
// Values of metrics.jsonl against other values and other runs that determine them.
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <fstream>

using namespace coeus;
using namespace coeus::test;

namespace {

// The lines that have this field.
std::vector<JsonDocument> lines_with(const std::filesystem::path& dump_folder, const std::string& field) {
    std::ifstream file(dump_folder / "metrics.jsonl");
    std::vector<JsonDocument> lines;
    for (std::string line; std::getline(file, line);)
        if (line.find("\"" + field + "\":") != std::string::npos)
            lines.push_back(JsonDocument::parse(line, "metrics.jsonl"));
    return lines;
}

double number(const JsonDocument& line, const std::string& field) {
    return line.root().number(field);
}

}  // namespace

TEST_CASE(
    "tokens a second of a rank are the step's tokens divided by its seconds and the ranks, on any mesh") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(200 * 17)});
    struct Layout {
        const char* name;
        Arguments mesh;
        int64_t data_ranks;
    };
    const std::vector<Layout> layouts = {
        {"dp", {}, 2},
        {"tp", {"--parallelism.tensor_parallel_degree=2"}, 1},
        {"cp", {"--parallelism.context_parallel_degree=2"}, 1},
        {"pp",
         {"--parallelism.pipeline_parallel_degree=2", "--parallelism.pipeline_parallel_schedule=GPipe"},
         1}};
    for (const Layout& layout : layouts) {
        train_tiny(
            folder / layout.name, folder / "tokens.h5",
            layout.mesh + Arguments{"--validation.enable", "--validation.freq=2", "--validation.steps=1"}, 2);
        CAPTURE(layout.name);
        const double tokens = double(4 * 16 * layout.data_ranks);
        const std::vector<JsonDocument> steps = lines_with(folder / layout.name, "tps"),
                                        validations = lines_with(folder / layout.name, "validation_tps");
        REQUIRE(steps.size() == 6);
        for (size_t i = 0; i < steps.size(); ++i) {
            CHECK(number(steps[i], "tokens_seen") == tokens * double(i + 1));
            if (i == 0) continue;  // its time is counted from the start of the run
            CHECK(number(steps[i], "tps") * number(steps[i], "step_s") * 2 == Approx(tokens));
            // MFU is not known if it would be above 100 %
            if (i > 1 && !steps[i].root()["mfu"].is_null() && !steps[1].root()["mfu"].is_null())
                CHECK(number(steps[i], "mfu") / number(steps[i], "tflops") ==
                      Approx(number(steps[1], "mfu") / number(steps[1], "tflops")));
        }
        REQUIRE(!validations.empty());
        for (const JsonDocument& line : validations)
            CHECK(number(line, "validation_tps") * number(line, "validation_s") * 2 ==
                  Approx(number(line, "validation_tokens")));
    }
}

TEST_CASE("the largest loss of the data ranks is a mean over the rank's own labels") {
    const TemporaryFolder folder;
    // two windows: in the first all 16 labels count, in the second only 3
    TokenData data = {.tokens = learnable_tokens(2 * 17)};
    for (int i = 0; i < 2 * 17; ++i) data.loss_mask.push_back(i < 17 || i % 6 == 0 ? 1 : 0);
    write_token_file(folder / "tokens.h5", data);
    const Arguments one_sequence = {"--training.local_batch_size=1", "--optimizer.lr=0"};
    train_tiny(folder / "one_rank", folder / "tokens.h5", one_sequence + Arguments{steps(2)});
    train_tiny(folder / "two_ranks", folder / "tokens.h5", one_sequence + Arguments{steps(1)}, 2);
    const std::vector<JsonDocument> own = lines_with(folder / "one_rank", "loss"),
                                    both = lines_with(folder / "two_ranks", "loss");
    REQUIRE(own.size() == 2);
    REQUIRE(both.size() == 1);
    const double first = number(own[0], "loss"), second = number(own[1], "loss");
    CHECK(first != second);
    CHECK(number(both[0], "loss_max") == Approx(std::max(first, second)).epsilon(1e-6));
    // the ranks have different numbers of labels
    CHECK(number(both[0], "loss") != Approx((first + second) / 2).epsilon(1e-6));
}

TEST_CASE("an update waits for the copies of an asynchronous checkpoint") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const Arguments saving = {"--checkpoint.enable", "--checkpoint.interval=2",
                              "--checkpoint.keep_latest_k=0"};
    train_tiny(folder / "direct", folder / "tokens.h5", saving);
    const Outcome slow = run_coeus(
        tiny_run(folder / "slow", folder / "tokens.h5", saving + Arguments{"--checkpoint.async_mode=async"}),
        0, {{"COEUS_FAULT", "slow_copy rank=0 seconds=0.3"}});
    INFO(slow.output);
    CHECK(slow.exit_code == 0);
    for (const int64_t step : {2, 4, 6}) {
        // /train differs: it has the deck, and the decks save differently
        std::vector<std::string> differing =
            differing_arrays(folder / "direct" / checkpoint_of(step), folder / "slow" / checkpoint_of(step));
        std::erase_if(differing, [](const std::string& path) { return path.starts_with("/train"); });
        CAPTURE(step, differing);
        CHECK(differing.empty());
    }
}
