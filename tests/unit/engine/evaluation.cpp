// SPDX-License-Identifier: Apache-2.0
// Engines that only evaluate: no state of training, exactly the planned memory, the loss and the scores of
// each token that a training engine gives.
#include "coeus/base/error.hpp"
#include "coeus/engine/engine.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr BatchShape evaluated = {.sequences = 3, .seq_len = 11, .masks_documents = true};

EngineOptions evaluating(Dtype master, Dtype compute) {
    return {.trains = false,
            .types = {.master = master, .compute = compute},
            .validation = evaluated,
            .scores_tokens = true};
}

EngineOptions training(Dtype master, Dtype compute) {
    EngineOptions options = evaluating(master, compute);
    options.trains = true;
    options.training = {.sequences = 2, .seq_len = 7};
    return options;
}

struct ReadyToEvaluate {
    ReadyToEvaluate(const DecoderConfig& model, const EngineOptions& options) : engine(model, options) {
        engine.allocate();
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
    }
    Engine engine;
};

TestBatch batch_for(const DecoderConfig& model) {
    TestBatch batch(evaluated.sequences, evaluated.seq_len, model.vocab);
    batch.ignore_every(4).split_documents(5, false);
    return batch;
}

}  // namespace

TEST_CASE(
    "evaluation: an engine without training has weights and activations, in exactly the planned memory") {
    for (const auto& [master, compute] :
         {std::pair(Dtype::f64, Dtype::f64), std::pair(Dtype::f32, Dtype::f32),
          std::pair(Dtype::f32, Dtype::bf16), std::pair(Dtype::bf16, Dtype::bf16)})
        for (const bool experts : {false, true}) {
            CAPTURE(name_of(master), name_of(compute), experts);
            DecoderConfig model = tiny_config();
            if (experts) set_experts(model, 1);
            ReadyToEvaluate only(model, evaluating(master, compute)), full(model, training(master, compute));
            const MemoryPlan& plan = only.engine.plan();
            for (const char* term : {term::gradients, term::moments, term::unreduced_gradients})
                CHECK(plan.bytes(term) == 0);
            CHECK(plan.bytes(term::weights) > 0);
            CHECK(plan.bytes(term::scores) ==
                  padded_bytes(3 * evaluated.count() * size_of(only.engine.options().types.accumulate())));
            CHECK(plan.total() < full.engine.plan().total());
            TestBatch batch = batch_for(model);
            TokenScores scores, of_full;
            const double loss = only.engine.evaluate(batch.local_batch(0, 3), scores);
            CHECK(loss == full.engine.evaluate(batch.local_batch(0, 3), of_full));
            CHECK(scores.losses == of_full.losses);
            CHECK(scores.label_is_largest == of_full.label_is_largest);
            const LayerMemory used = only.engine.used(), planned = only.engine.layer_memory();
            CHECK(used.executor.frame == planned.executor.frame);
            CHECK(used.activations == planned.activations);
            CHECK(used.temporaries == planned.temporaries);
            CHECK(used.workspace == planned.workspace);
            CHECK_THROWS_WITH(
                only.engine.compute_gradients(1, 0, 1, [&](int64_t) { return batch.local_batch(0, 2); }),
                Catch::Contains("only evaluates"));
        }
}

TEST_CASE("evaluation: predicting takes exactly the planned memory, and no byte unless it is asked for") {
    for (const int64_t vocab : {37, 4096}) {  // for few columns the loss needs more, for many the logits
        DecoderConfig model = tiny_config();
        model.vocab = vocab;
        EngineOptions options = evaluating(Dtype::f32, Dtype::bf16);
        options.scores_tokens = false;
        const ReadyToEvaluate plain(model, options);
        options.predicts = true;
        ReadyToEvaluate ready(model, options);
        CHECK(plain.engine.plan().bytes(term::logits) == 0);
        CHECK(ready.engine.plan().bytes(term::logits) == evaluated.sequences * vocab * size_of(Dtype::f32));
        TestBatch batch = batch_for(model);
        const double loss = ready.engine.evaluate(batch.local_batch(0, 3));
        const std::vector<int64_t> places = {0, 10, 4};
        for (const Tensor& logits : ready.engine.predict(batch.local_batch(0, 3), places))
            CHECK(logits.count() == vocab);
        CHECK(ready.engine.evaluate(batch.local_batch(0, 3)) == loss);
        const LayerMemory used = ready.engine.used(), planned = ready.engine.layer_memory();
        CHECK(used.executor.frame == planned.executor.frame);
        CHECK(used.activations == planned.activations);
        CHECK(used.temporaries == planned.temporaries);
        CHECK(used.workspace <= planned.workspace);  // a library multiplies without it
    }
}

TEST_CASE("evaluation: the losses of tokens add up to the loss, which does not change by a bit") {
    const DecoderConfig model = tiny_config();
    EngineOptions without = training(Dtype::f64, Dtype::f64);
    without.scores_tokens = false;
    ReadyToEvaluate asked(model, evaluating(Dtype::f64, Dtype::f64)), plain(model, without);
    TestBatch batch = batch_for(model);
    for (const int64_t sequences : {1, 2, 3}) {
        TokenScores scores;
        const double loss = asked.engine.evaluate(batch.local_batch(0, sequences), scores);
        CHECK(loss == plain.engine.evaluate(batch.local_batch(0, sequences)));
        CHECK(loss == asked.engine.evaluate(batch.local_batch(0, sequences)));
        REQUIRE(scores.losses.size() == size_t(sequences * evaluated.seq_len));
        CHECK(
            relatively_close(std::accumulate(scores.losses.begin(), scores.losses.end(), 0.0), loss, 1e-13));
        for (size_t i = 0; i < scores.losses.size(); ++i) {
            CHECK((scores.losses[i] == 0) == (batch.labels[i] == -100));
            if (batch.labels[i] == -100) CHECK(scores.label_is_largest[i] == 0);
        }
    }
    CHECK_THROWS_AS(plain.engine.evaluate(batch.local_batch(0, 1), *std::make_unique<TokenScores>()),
                    LogicError);
}

TEST_CASE("evaluation: the label is the largest if its loss is the smallest of all labels, and ties count") {
    DecoderConfig model = tiny_config();
    ReadyToEvaluate ready(model, evaluating(Dtype::f64, Dtype::f64));
    TestBatch batch = batch_for(model);
    std::vector<double> smallest(batch.labels.size(), 1e300);
    std::vector<int32_t> best(batch.labels.size());
    std::vector<std::vector<uint8_t>> is_largest;
    for (int32_t label = 0; label < model.vocab; ++label) {
        std::ranges::fill(batch.labels, label);
        TokenScores scores;
        ready.engine.evaluate(batch.local_batch(0, 3), scores);
        is_largest.push_back(scores.label_is_largest);
        for (size_t i = 0; i < smallest.size(); ++i)
            if (scores.losses[i] < smallest[i]) {
                smallest[i] = scores.losses[i];
                best[i] = label;
            }
    }
    for (size_t i = 0; i < best.size(); ++i)
        for (int32_t label = 0; label < model.vocab; ++label)
            CHECK(is_largest[size_t(label)][i] == (label == best[i] ? 1 : 0));
    // all logits are equal
    for (Storage& storage : ready.engine.model().parameters().storages())
        if (storage.params().front().name == "output.weight")
            std::memset(storage.master.data, 0, size_t(storage.master.bytes()));
    ready.engine.renew_weights();
    TokenScores scores;
    ready.engine.evaluate(batch.local_batch(0, 3), scores);
    CHECK(std::ranges::all_of(scores.label_is_largest, [](uint8_t largest) { return largest == 1; }));
    for (const double loss : scores.losses) CHECK(close(loss, std::log(double(model.vocab)), 1e-12));
}

TEST_CASE("evaluation: a chunk of the head that has every other token writes to their places") {
    const DecoderConfig model = config_of_16s();
    EngineOptions options = evaluating(Dtype::f32, Dtype::f32);
    options.types.precision.linear = Recipe::tensorwise;
    options.validation = {.sequences = 2, .seq_len = 1024};  // two chunks, whose tokens share scales
    ReadyToEvaluate ready(model, options);
    TestBatch batch(2, 1024, model.vocab);
    TokenScores all, one;
    const double loss = ready.engine.evaluate(batch.local_batch(0, 2), all);
    CHECK(relatively_close(std::accumulate(all.losses.begin(), all.losses.end(), 0.0), loss, 1e-6));
    const std::vector<int32_t> labels = batch.labels;
    for (const size_t token : {0, 1, 2, 1023, 1024, 1500, 2047}) {
        CAPTURE(token);
        std::ranges::fill(batch.labels, -100);
        batch.labels[token] = labels[token];
        CHECK(float(ready.engine.evaluate(batch.local_batch(0, 2), one)) == float(all.losses[token]));
        CHECK(one.losses[token] == all.losses[token]);
        CHECK(one.label_is_largest[token] == all.label_is_largest[token]);
    }
}

TEST_CASE("evaluation: 8 billion parameters in bfloat16 need 16 GB, not 128") {
    DecoderConfig model = tiny_config();
    model.dim = 4096;
    model.layers = 32;
    model.vocab = 128256;
    model.grouped().heads = 32;
    model.grouped().kv_heads = 8;
    model.grouped().head_dim = 128;
    model.feed_forward.hidden = 14336;
    const MemoryPlan plan = Engine(model, evaluating(Dtype::bf16, Dtype::bf16)).plan();
    CHECK(model.parameters() > 8'000'000'000);
    CHECK(plan.bytes(term::weights) + plan.bytes(term::compute_weights) < 16'100'000'000);
    CHECK(plan.total() < 17'500'000'000);
    EngineOptions divided = evaluating(Dtype::bf16, Dtype::bf16);
    divided.mesh = {.dp_shard = 4};
    const MemoryPlan of_rank = Engine(model, divided).plan();
    CHECK(of_rank.bytes(term::weights) < 4'100'000'000);
    CHECK(of_rank.bytes(term::gathered_weights) > 0);
    CHECK(of_rank.bytes(term::unreduced_gradients) == 0);
    CHECK(of_rank.total() < 7'500'000'000);
}
