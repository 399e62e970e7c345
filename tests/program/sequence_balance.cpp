// SPDX-License-Identifier: Apache-2.0
// Runs with the loss that balances the experts within each sequence: what they log, and decks that are
// refused.
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

struct Losses {
    std::vector<double> all, balance;
};

Losses losses_of(const fs::path& run) {
    Losses losses;
    std::istringstream lines(read_file(run / "metrics.jsonl"));
    for (std::string text; std::getline(lines, text);) {
        const JsonDocument line = JsonDocument::parse(text, "metrics.jsonl");
        if (!line.root().contains("loss")) continue;
        losses.all.push_back(line.root().number("loss"));
        if (line.root().contains("moe_sequence_balance_loss"))
            losses.balance.push_back(line.root().number("moe_sequence_balance_loss"));
    }
    return losses;
}

}  // namespace

TEST_CASE("the loss that balances sequences is part of the loss, and is logged equally on every mesh") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(60 * 17)});
    const Arguments plain = tiny_experts + Arguments{"--training.dtype=float64"},
                    balanced = plain + Arguments{"--model.moe.sequence_balance_coeff=0.01"};
    const Outcome outcome = train_tiny(folder / "one", data, balanced);
    CHECK_THAT(outcome.output, Contains("sequence balance loss: 0.02"));
    const Losses one = losses_of(folder / "one");
    REQUIRE(one.balance.size() == 6);
    // each of 2 layers has 0.01 if the loads are even
    for (const double loss : one.balance) CHECK((loss > 0.02 && loss < 0.03));
    train_tiny(folder / "plain", data, plain);
    const Losses without = losses_of(folder / "plain");
    CHECK(without.balance.empty());
    CHECK(close(one.all[0] - one.balance[0], without.all[0], 1e-12));  // before the first update
    for (const std::string axis : {"tensor", "context", "pipeline"}) {
        CAPTURE(axis);
        train_tiny(folder / axis, data, balanced + Arguments{"--parallelism." + axis + "_parallel_degree=2"},
                   2);
        const Losses divided = losses_of(folder / axis);
        REQUIRE(divided.balance.size() == 6);
        for (size_t i = 0; i < 6; ++i) {
            CHECK(close(divided.balance[i], one.balance[i], 1e-11));
            CHECK(close(divided.all[i], one.all[i], 1e-11));
        }
    }
}

TEST_CASE(
    "a coefficient of the loss that balances sequences is refused by a dense model, and if it is negative") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(60 * 17)});
    const auto refusal = [&](const Arguments& more) {
        const Outcome outcome = run_coeus(tiny_run(folder / "run", data, more));
        CHECK(outcome.exit_code == 2);
        CHECK_FALSE(fs::exists(folder / "run/metrics.jsonl"));
        return outcome.output;
    };
    CHECK_THAT(
        refusal({"--model.moe.sequence_balance_coeff=0.01"}),
        Contains("model.moe.sequence_balance_coeff = 0.01: llama3 debugmodel has no layer with experts"));
    CHECK_THAT(refusal(tiny_experts + Arguments{"--model.moe.sequence_balance_coeff=-1"}),
               Contains("model.moe.sequence_balance_coeff = -1: must be "));
}
