// SPDX-License-Identifier: Apache-2.0
// Runs with a z-loss: what they log, equally on every mesh, and decks that are refused.
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::vector<double> z_losses_of(const fs::path& run) {
    std::vector<double> losses;
    std::istringstream lines(read_file(run / "metrics.jsonl"));
    for (std::string text; std::getline(lines, text);) {
        const JsonDocument line = JsonDocument::parse(text, "metrics.jsonl");
        if (line.root().contains("z_loss")) losses.push_back(line.root().number("z_loss"));
    }
    return losses;
}

}  // namespace

TEST_CASE("the z-loss is part of the loss, not of validation, and is logged equally on every mesh") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(60 * 17)});
    // three ranks divide the vocabulary into 22, 22 and 20 columns
    const Arguments plain = {"--training.dtype=float64", "--model.dim=36",        "--model.n_heads=6",
                             "--model.n_kv_heads=3",     "--training.seq_len=12", "--validation.seq_len=12",
                             "--validation.enable",      "--validation.freq=6"},
                    with = plain + Arguments{"--loss.z_loss_weight=0.01"};
    const Outcome outcome = train_tiny(folder / "one", data, with);
    CHECK_THAT(outcome.output, Contains("  z loss: 0.2"));
    const MetricLines one = read_metrics(folder / "one");
    const std::vector<double> z = z_losses_of(folder / "one");
    REQUIRE(z.size() == 6);
    // more than the square of ln 64, which equal logits have
    CHECK((z[0] > 0.01 * 17.2 && z[0] < 0.01 * 25));
    train_tiny(folder / "plain", data, plain);
    const MetricLines without = read_metrics(folder / "plain");
    CHECK(z_losses_of(folder / "plain").empty());
    CHECK(close(one.steps[0].loss - z[0], without.steps[0].loss, 1e-12));  // before the first update
    CHECK(one.validations.back().loss < one.steps.back().loss - 0.5 * z.back());
    // a weight of 0 adds nothing
    train_tiny(folder / "zero", data, plain + Arguments{"--loss.z_loss_weight=0"});
    CHECK(read_metrics(folder / "zero").losses() == without.losses());
    CHECK(z_losses_of(folder / "zero").empty());

    struct Case {
        const char* name;
        Arguments arguments;
        int ranks;
    };
    const std::string tensor = "--parallelism.tensor_parallel_degree=";
    for (const Case& c :
         {Case{"tensor2", {tensor + "2", "--model.n_kv_heads=6"}, 2}, Case{"tensor3", {tensor + "3"}, 3},
          Case{"whole", {tensor + "3", "--parallelism.disable_loss_parallel"}, 3},
          Case{"pipeline", {"--parallelism.pipeline_parallel_degree=2"}, 2}}) {
        CAPTURE(c.name);
        std::string reference = "one";
        if (c.arguments.size() > 1 && c.ranks == 2) {
            reference = "grouped";
            train_tiny(folder / reference, data, with + Arguments{c.arguments[1]});
        }
        train_tiny(folder / c.name, data, with + c.arguments, c.ranks);
        const MetricLines divided = read_metrics(folder / c.name), whole = read_metrics(folder / reference);
        const std::vector<double> there = z_losses_of(folder / c.name),
                                  here = z_losses_of(folder / reference);
        REQUIRE(there.size() == 6);
        for (size_t i = 0; i < 6; ++i) {
            CHECK(close(there[i], here[i], 1e-12));
            CHECK(close(divided.steps[i].loss, whole.steps[i].loss, 1e-11));
        }
        CHECK(close(divided.validations.back().loss, whole.validations.back().loss, 1e-11));
    }
}

TEST_CASE("a negative weight of the z-loss is refused, and so is the z-loss of routers") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(60 * 17)});
    const auto refusal = [&](const std::string& option) {
        const Outcome outcome = run_coeus(tiny_run(folder / "run", data, {option}));
        CHECK(outcome.exit_code == 2);
        CHECK_FALSE(fs::exists(folder / "run/metrics.jsonl"));
        return outcome.output;
    };
    CHECK_THAT(refusal("--loss.z_loss_weight=-0.5"), Contains("loss.z_loss_weight = -0.5: must be "));
    CHECK_THAT(refusal("--loss.z_loss=1e-4"), Contains("did you mean --loss.z_loss_weight?"));
    CHECK_THAT(refusal("--moe_z_loss_coeff=1e-3"),
               Contains("unknown option --moe_z_loss_coeff; routers have no z-loss here: "
                        "loss.z_loss_weight is that of the output's logits"));
}
