// SPDX-License-Identifier: Apache-2.0
// The validation loss: every sample once, whatever the batch size; the mean over valid tokens.
#include "coeus/train/evaluator.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"
#include "unit/data/token_files.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t window_tokens = 4;

Config config_with(int64_t sequences, int64_t steps, bool document_mask = false) {
    Config config;
    config.validation.enable = true;
    config.validation.local_batch_size = sequences;
    config.validation.steps = steps;
    config.validation.seq_len = window_tokens;
    config.training.document_mask = document_mask;
    return config;
}

ValidationMetrics validate(const SampleStream& sampler, const Config& config,
                           const std::vector<std::string>& sources = {}) {
    Engine engine(tiny_config(),
                  {.types = {.master = Dtype::f64, .compute = Dtype::f64},
                   .training = {.sequences = 1, .seq_len = window_tokens},
                   .validation = {.sequences = config.validation.local_batch_size, .seq_len = window_tokens},
                   .scores_tokens = !sources.empty()});
    engine.allocate();
    engine.model().parameters().initialise(5, 1);
    engine.renew_weights();
    Evaluator evaluator(config, sampler, sources);
    const ValidationMetrics first = evaluator.run(engine, [] { return true; }).value();
    CHECK_FALSE(evaluator.run(engine, [] { return false; }));
    CHECK(evaluator.run(engine, [] { return true; })->loss == first.loss);
    return first;
}

}  // namespace

TEST_CASE("evaluator: batches of any size give one loss") {
    const TemporaryFolder folder;
    // 7 windows of 5 tokens below 37; every third token is not a label
    std::vector<uint8_t> mask;
    for (int i = 0; i < 36; ++i) mask.push_back(i % 3 != 1);
    const TokenFile file(counting_file(folder / "tokens.h5", 36, {3, 11, 12, 30}, mask));
    const Sampler sampler(file, {.seq_len = window_tokens});
    const ValidationMetrics one = validate(sampler, config_with(1, -1));
    int64_t valid = 0;
    for (int64_t window = 0; window < 7; ++window)
        for (int64_t t = 1; t <= window_tokens; ++t) valid += mask[size_t(window * 5 + t)];
    CHECK(one.tokens == valid);
    CHECK(one.loss > 3);
    CHECK(one.loss < 5);
    CHECK(one.seconds > 0);
    CHECK(one.tps > 0);
    for (int64_t sequences : {2, 3, 7, 10}) {
        const ValidationMetrics some = validate(sampler, config_with(sequences, -1));
        CHECK(some.tokens == valid);
        CHECK(relatively_close(some.loss, one.loss, 1e-13));
    }
    // documents matter if the document mask is enabled
    const double masked = validate(sampler, config_with(3, -1, true)).loss;
    CHECK(std::fabs(masked - one.loss) > 1e-6 * one.loss);
    CHECK(relatively_close(masked, validate(sampler, config_with(2, -1, true)).loss, 1e-13));
}

TEST_CASE("evaluator: steps count batches") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "tokens.h5", 36));
    const Sampler sampler(file, {.seq_len = window_tokens});
    CHECK(validate(sampler, config_with(2, 2)).tokens == 4 * window_tokens);
    CHECK(validate(sampler, config_with(1, 4)).loss == validate(sampler, config_with(1, 4)).loss);
    CHECK(relatively_close(validate(sampler, config_with(1, 4)).loss,
                           validate(sampler, config_with(2, 2)).loss, 1e-13));
    CHECK(validate(sampler, config_with(2, 100)).tokens == 7 * window_tokens);
    CHECK(validate(sampler, config_with(2, INT64_MAX / 2)).tokens == 7 * window_tokens);
}

TEST_CASE(
    "evaluator: every window of several sources counts once, and few steps are spread over all sources") {
    const TemporaryFolder folder;
    // in the second source, only one of two windows has labels
    std::vector<uint8_t> mask(10, 0);
    mask[1] = 1;
    const TokenFile a(counting_file(folder / "a.h5", 20)), b(counting_file(folder / "b.h5", 10, {}, mask));
    const std::vector<Sampler> sources = {Sampler(a, {.seq_len = window_tokens}),
                                          Sampler(b, {.seq_len = window_tokens})};
    const SampleStream stream(sources, {});
    CHECK(validate(stream, config_with(2, -1)).tokens == 4 * window_tokens + 1);
    // two windows of the first source for each one of the second
    CHECK(validate(stream, config_with(3, 1)).tokens == 2 * window_tokens + 1);
    const double alone = validate(sources[0], config_with(4, -1)).loss * 4 * window_tokens;
    const double other = validate(sources[1], config_with(4, -1)).loss;
    CHECK(relatively_close(validate(stream, config_with(3, -1)).loss,
                           (alone + other) / (4 * window_tokens + 1), 1e-12));
}

TEST_CASE("evaluator: the loss of each source is that of its windows") {
    const TemporaryFolder folder;
    std::vector<uint8_t> mask(10, 0);
    mask[1] = 1;
    const TokenFile a(counting_file(folder / "a.h5", 20)), b(counting_file(folder / "b.h5", 10, {}, mask));
    const std::vector<Sampler> sources = {Sampler(a, {.seq_len = window_tokens}),
                                          Sampler(b, {.seq_len = window_tokens})};
    const ValidationMetrics without = validate(SampleStream(sources, {}), config_with(2, -1));
    CHECK(without.sources.empty());
    for (const int64_t sequences : {1, 2, 3, 10}) {
        const ValidationMetrics m =
            validate(SampleStream(sources, {}), config_with(sequences, -1), {"a", "b"});
        CHECK(relatively_close(m.loss, without.loss, 1e-13));
        CHECK(m.tokens == without.tokens);
        REQUIRE(m.sources.size() == 2);
        for (size_t k = 0; k < 2; ++k) {
            const ValidationMetrics alone = validate(sources[k], config_with(4, -1));
            CHECK(m.sources[k].name == (k == 0 ? "a" : "b"));
            CHECK(m.sources[k].tokens == alone.tokens);
            CHECK(relatively_close(m.sources[k].loss, alone.loss, 1e-12));
        }
    }
    // one batch of one sample has no label of the other source
    const ValidationMetrics few = validate(SampleStream(sources, {}), config_with(1, 1), {"a", "b"});
    CHECK(few.sources[0].tokens + few.sources[1].tokens == few.tokens);
    CHECK(std::isnan(few.sources[few.sources[0].tokens > 0 ? 1 : 0].loss));
}

TEST_CASE("evaluator: samples without any label are an error") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "tokens.h5", 10, {}, std::vector<uint8_t>(10, 0)));
    const Sampler sampler(file, {.seq_len = window_tokens});
    CHECK_THROWS_AS(validate(sampler, config_with(1, -1)), ConfigError);
    CHECK_THROWS_WITH(validate(sampler, config_with(1, -1)),
                      "validation: no token of its 2 samples is a label, so there is no loss; check "
                      "/loss_mask of the validation data");
}
