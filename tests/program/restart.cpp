// SPDX-License-Identifier: Apache-2.0
// A run that was stopped and started again ends with the same bits as one that was not.
#include "program/tiny_run.hpp"

#include <catch2/catch.hpp>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// 30 windows: with 8 samples a step, an epoch ends within the fourth.
fs::path write_data(const TemporaryFolder& folder) {
    const fs::path file = folder / "tokens.h5";
    write_token_file(file, {.tokens = learnable_tokens(30 * 17), .documents = {0, 7, 7, 100, 300, 510}});
    return file;
}

const Arguments saving = {"--checkpoint.enable", "--checkpoint.interval=100", "--training.shuffle",
                          "--lr_scheduler.total_steps=7"};

}  // namespace

TEST_CASE("A run that is stopped and resumed has the bits of one that is not") {
    struct Case {
        const char* what;
        Arguments arguments;
        int ranks;
    };
    const Case all[] = {
        {"float32, 2 ranks", {"--training.document_mask"}, 2},
        {"bfloat16 compute", {"--training.mixed_precision_param=bfloat16"}, 0},
        {"bfloat16 weights", {"--training.dtype=bfloat16", "--training.mixed_precision_param=bfloat16"}, 0},
    };
    for (const Case& c : all) {
        CAPTURE(c.what);
        const TemporaryFolder folder;
        const fs::path data = write_data(folder), whole = folder / "whole", parts = folder / "parts";
        const Arguments more = saving + c.arguments + Arguments{"--training.global_batch_size=8"};
        train_tiny(whole, data, more + Arguments{steps(7)}, c.ranks);
        for (int64_t stop : {1, 2, 5, 7}) {
            const Outcome run = train_tiny(parts, data, more + Arguments{steps(stop)}, c.ranks);
            CHECK_THAT(run.output, Contains(fmt::format("Training completed at step {}", stop)));
            if (stop > 1) CHECK_THAT(run.output, Contains("Resuming from"));
        }
        const MetricLines a = read_metrics(whole), b = read_metrics(parts);
        REQUIRE(a.steps.size() == 7);
        REQUIRE(b.steps.size() == 7);
        for (size_t i = 0; i < 7; ++i) {
            CAPTURE(i);
            CHECK(b.steps[i].step == int64_t(i) + 1);
            CHECK(b.steps[i].loss == a.steps[i].loss);
            CHECK(b.steps[i].loss_max == a.steps[i].loss_max);
            CHECK(b.steps[i].grad_norm == a.steps[i].grad_norm);
            CHECK(b.steps[i].lr == a.steps[i].lr);
            CHECK(b.steps[i].tokens_seen == a.steps[i].tokens_seen);
        }
        CHECK(a.losses().back() < a.losses().front());
        CHECK(differing_arrays(whole / checkpoint_of(7), parts / checkpoint_of(7)).empty());
        CHECK_FALSE(differing_arrays(parts / checkpoint_of(5), parts / checkpoint_of(7)).empty());
    }
}
