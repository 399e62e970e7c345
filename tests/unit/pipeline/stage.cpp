// SPDX-License-Identifier: Apache-2.0
// A whole decoder in a Stage: gradients, evaluation, logits, accumulation, repeatability, training.
#include "coeus/pipeline/stage.hpp"

#include "coeus/models/registry.hpp"
#include "coeus/optim/grad_norm.hpp"
#include "coeus/optim/param_groups.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/gradcheck.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

const StateTypes f64 = {Dtype::f64, Dtype::f64}, f32 = {Dtype::f32, Dtype::f32},
                 bf16_over_f32 = {Dtype::f32, Dtype::bf16}, bf16_alone = {Dtype::bf16, Dtype::bf16};
const StateTypes all_types[] = {f64, f32, bf16_over_f32, bf16_alone};

// Loss and gradients of one pass, as bits.
struct Result {
    double loss;
    std::vector<double> gradients;
    bool operator==(const Result&) const = default;
};

Result run(TestModel& model, TestBatch& batch) {
    model.scalars.loss = 0;
    model.scalars.loss_scale = 1.0 / double(batch.valid_labels());
    model.zero_gradients();
    model.forward_backward(batch);
    return {model.scalars.loss, values(model.parameters().gradients())};
}

// Mean over the valid labels of log(sum exp logits) - logits[label], in double.
double loss_of(const Tensor& logits, const TestBatch& batch) {
    double sum = 0;
    for (int64_t t = 0; t < logits.rows(); ++t) {
        if (batch.labels[size_t(t)] == -100) continue;
        double total = 0;
        for (int64_t v = 0; v < logits.cols(); ++v) total += std::exp(element(logits, t * logits.cols() + v));
        sum += std::log(total) - element(logits, t * logits.cols() + batch.labels[size_t(t)]);
    }
    return sum / double(batch.valid_labels());
}

// Compares all gradients of a whole decoder with finite differences.
std::string check_all_gradients(Decoder& decoder, const TestBatch& batch) {
    decoder.allocate_tables(host_device());
    const Stage stage(decoder);
    const CheckedLayer whole = {[&](Ctx& c, Tensor) {
                                    forward_backward(stage, c);
                                    return Tensor{};
                                },
                                [](Ctx&, Tensor) { return Tensor{}; }};
    return gradcheck(decoder.parameters(), whole, batch, {.entries = 6, .spread = 0.3});
}

}  // namespace

TEST_CASE("decoder: every gradient against finite differences") {
    struct Variant {
        NormType norm;
        bool tied;
        RopeLayout layout;
        int64_t kv_heads;
    };
    for (const Variant& v : {Variant{NormType::rms_norm, false, RopeLayout::interleaved, 2},
                             Variant{NormType::layer_norm, true, RopeLayout::half_split, 1},
                             Variant{NormType::np_layer_norm, false, RopeLayout::interleaved, 4}}) {
        CAPTURE(int(v.norm), v.tied, v.kv_heads);
        DecoderConfig config = tiny_config();
        config.norm_type = v.norm;
        config.tied = v.tied;
        config.rope.layout = v.layout;
        config.grouped().kv_heads = v.kv_heads;
        config.norm_eps = 0.01;
        Decoder decoder(config, f64, 7);
        TestBatch batch(3, 7, config.vocab);
        batch.split_documents(4, true).ignore_every(5);
        CHECK(check_all_gradients(decoder, batch) == "");
    }
}

TEST_CASE("multi-token prediction: every gradient against finite differences") {
    for (const bool tied : {false, true})
        for (const Recompute recompute : {Recompute::nothing, Recompute::operations, Recompute::block}) {
            CAPTURE(tied, int(recompute));
            DecoderConfig config = tiny_config(1, tied);
            config.mtp.layers = 2;
            config.mtp.scale = 0.7;
            config.norm_eps = 0.01;
            Decoder decoder(config, f64, 7, {}, std::vector<Recompute>(3, recompute));
            TestBatch batch(3, 7, config.vocab);
            batch.split_documents(4, true).ignore_every(5).look_ahead(2);
            CHECK(check_all_gradients(decoder, batch) == "");
        }
}

TEST_CASE(
    "multi-token prediction: the loss has a part for each depth, and a weight of 0 gives the plain model") {
    DecoderConfig config = tiny_config();
    config.mtp.layers = 2;
    TestBatch batch(2, 9, config.vocab);
    batch.ignore_every(4);
    TestModel model(config, f64, {2, 9});
    const Result with = run(model, batch);
    const double part = std::exchange(model.scalars.losses[decoder_loss::mtp], 0);
    model.scalars.loss = 0;
    model.evaluate(batch);
    CHECK(relatively_close(with.loss, model.scalars.loss + part, 1e-13));
    CHECK(model.scalars.losses[decoder_loss::mtp] == 0);
    CHECK(part > 0);

    config.mtp.scale = 0;
    TestModel unweighted(config, f64, {2, 9});
    CHECK(relatively_close(run(unweighted, batch).loss, model.scalars.loss, 1e-13));
    config.mtp.layers = 0;
    TestModel plain(config, f64, {2, 9});
    run(plain, batch);
    for (const Storage& storage : plain.parameters().storages())
        for (const Param& param : storage.params()) {
            INFO(param.name);
            CHECK(normalised_error(values(unweighted.copy(param.name, &Storage::g)),
                                   values(plain.copy(param.name, &Storage::g))) <= 1e-13);
        }
}

TEST_CASE("decoder: the smallest model runs: one layer, one head, one token") {
    DecoderConfig config = tiny_config();
    config.dim = config.layers = config.grouped().heads = config.grouped().kv_heads =
        config.feed_forward.hidden = 1;
    config.grouped().head_dim = 2;
    config.vocab = 2;
    for (const StateTypes& types : all_types) {
        TestModel model(config, types, {1, 1});
        TestBatch batch(1, 1, 2);
        const Result result = run(model, batch);
        CHECK(std::isfinite(result.loss));
        CHECK(close(result.loss, loss_of(model.logits(batch), batch),
                    types.compute == Dtype::bf16 ? 1e-2 : 1e-6));
    }
}

TEST_CASE("evaluation gives the same bits as the training pass, and changes nothing") {
    for (const StateTypes& types : all_types)
        for (const bool documents : {false, true}) {
            CAPTURE(name_of(types.master), name_of(types.compute), documents);
            TestModel model(tiny_config(), types, {3, 11});
            TestBatch batch(3, 11, 37);
            batch.ignore_every(4);
            if (documents) batch.split_documents(5, false);
            const Result trained = run(model, batch);
            CHECK(std::isfinite(trained.loss));
            model.scalars.loss = 0;
            model.evaluate(batch);
            CHECK(model.scalars.loss == trained.loss);
            CHECK(values(model.parameters().gradients()) == trained.gradients);
            CHECK(model.frame.mark().entries == 0);
            CHECK(model.frame.mark().bytes == 0);
            CHECK(model.temp.mark() == 0);
        }
}

TEST_CASE("logits, last logits and loss agree") {
    for (const StateTypes& types : all_types) {
        CAPTURE(name_of(types.master), name_of(types.compute));
        TestModel model(tiny_config(), types, {3, 5});
        TestBatch batch(3, 5, 37);
        batch.ignore_every(4);
        const OwnedTensor all = model.logits(batch), last = model.last_logits(batch);
        CHECK(all.view.dtype == types.accumulate());
        const double tolerance = types.compute == Dtype::f64 ? 1e-13 : 1e-5;
        for (int64_t i = 0; i < 3; ++i)
            for (int64_t v = 0; v < 37; ++v)
                CHECK(close(element(last, i * 37 + v), element(all, ((i + 1) * 5 - 1) * 37 + v), tolerance));
        const double loss = run(model, batch).loss;
        const double bound = types.compute == Dtype::f64 ? 1e-13 : types.compute == Dtype::f32 ? 1e-6 : 1e-2;
        CHECK(relatively_close(loss, loss_of(all, batch), bound));
    }
}

TEST_CASE("recomputed activations have the same bits, in a smaller frame of exactly the planned size") {
    using enum Recompute;
    DecoderConfig config = tiny_config();
    config.layers = 4;
    for (const StateTypes& types : all_types)
        for (const NormType norm : {NormType::rms_norm, NormType::layer_norm, NormType::np_layer_norm}) {
            config.norm_type = norm;
            TestBatch batch(3, 11, 37);
            batch.ignore_every(4).split_documents(5, false);
            TestModel plain(config, types, {3, 11});
            const Result kept = run(plain, batch);
            CHECK(std::isfinite(kept.loss));
            int64_t largest = plain.layers.activations;
            for (const std::vector<Recompute>& choices :
                 {std::vector{nothing, operations, nothing, nothing},
                  std::vector{operations, operations, operations, operations},
                  std::vector{nothing, block, operations, block}, std::vector{block, block, block, block}}) {
                CAPTURE(name_of(types.master), name_of(types.compute), int(norm), int(choices[1]),
                        int(choices[3]));
                TestModel model(config, types, {3, 11}, 1, 1, choices);
                CHECK(run(model, batch) == kept);
                CHECK(model.frame.peak_bytes() == model.layers.activations);
                CHECK(model.frame.peak_entries() == model.layers.executor.frame_entries);
                CHECK(model.temp.peak() == model.layers.temporaries);
                CHECK(model.layers.activations < largest);
                largest = model.layers.activations;
                model.scalars.loss = 0;
                model.evaluate(batch);
                CHECK(model.scalars.loss == kept.loss);
            }
        }
}

TEST_CASE("a token does not see later ones, other sequences or other documents") {
    TestModel model(tiny_config(), f64, {2, 9});
    TestBatch batch(2, 9, 37);
    batch.split_documents(4, false);
    const std::vector<double> before = values(model.logits(batch));
    const auto changed_by = [&](size_t token) {
        TestBatch other = batch;
        other.tokens[token] = (other.tokens[token] + 1) % 37;
        const std::vector<double> after = values(model.logits(other));
        std::vector<size_t> rows;
        for (size_t t = 0; t < 18; ++t)
            if (!std::equal(after.begin() + long(t * 37), after.begin() + long((t + 1) * 37),
                            before.begin() + long(t * 37)))
                rows.push_back(t);
        return rows;
    };
    CHECK(changed_by(1) == std::vector<size_t>{1, 2, 3});
    CHECK(changed_by(4) == std::vector<size_t>{4, 5, 6, 7});
    CHECK(changed_by(8) == std::vector<size_t>{8});
    CHECK(changed_by(9) == std::vector<size_t>{9, 10, 11, 12});
    CHECK(changed_by(17) == std::vector<size_t>{17});
}

TEST_CASE("micro-batches add up to the whole batch") {
    TestModel model(tiny_config(), f64, {4, 6});
    TestBatch whole(4, 6, 37);
    whole.ignore_every(7);
    const Result together = run(model, whole);

    model.scalars.loss = 0;
    model.scalars.loss_scale = 1.0 / double(whole.valid_labels());
    model.zero_gradients();
    for (size_t i = 0; i < 4; ++i) {
        TestBatch part(1, 6, 37);
        const auto cut = [&](const std::vector<int32_t>& from) {
            return std::vector<int32_t>(from.begin() + long(6 * i), from.begin() + long(6 * (i + 1)));
        };
        part.tokens = cut(whole.tokens);
        part.labels = cut(whole.labels);
        model.forward_backward(part);
    }
    CHECK(relatively_close(model.scalars.loss, together.loss, 1e-13));
    CHECK(normalised_error(values(model.parameters().gradients()), together.gradients) <= 1e-13);
}

TEST_CASE("the same pass gives the same bits, whatever the memory contained and however many threads run") {
    for (const StateTypes& types : all_types) {
        CAPTURE(name_of(types.master), name_of(types.compute));
        TestBatch batch(3, 53, 37);  // odd, and longer than a tile of attention
        TestModel model(tiny_config(), types, {3, 53}, 1);
        const Result first = run(model, batch);
        CHECK(std::isfinite(first.loss));
        CHECK(run(model, batch) == first);  // arenas are filled with NaN before each pass
        for (const int threads : {2, 3}) {
            TestModel other(tiny_config(), types, {3, 53}, threads);
            CHECK(run(other, batch) == first);
        }
    }
}

TEST_CASE("loss and gradients do not depend on the chunks of the head") {
    // float32: from a vocabulary of 6555 on, a chunk has 256 tokens
    DecoderConfig config = tiny_config();
    config.dim = 8;
    config.grouped().heads = config.grouped().kv_heads = 2;
    config.grouped().head_dim = 4;
    config.layers = 1;
    config.vocab = 6601;
    TestBatch whole(2, 150, config.vocab);
    whole.ignore_every(3);
    TestModel model(config, f32, {2, 150});
    const Result chunked = run(model, whole);
    model.scalars.loss = 0;
    model.evaluate(whole);
    CHECK(model.scalars.loss == chunked.loss);
    CHECK(relatively_close(chunked.loss, loss_of(model.logits(whole), whole), 1e-6));

    TestModel reference(config, f64, {2, 150});
    for (size_t i = 0; i < model.parameters().storages().size(); ++i)
        test::copy_converting(reference.parameters().storages()[i].master,
                              model.parameters().storages()[i].master);
    const Result in_double = run(reference, whole);
    CHECK(relatively_close(chunked.loss, in_double.loss, 1e-6));
    for (size_t i = 0; i < model.parameters().storages().size(); ++i) {
        const Storage& s = model.parameters().storages()[i];
        INFO(s.params()[0].name);
        CHECK(normalised_error(values(s.g), values(reference.parameters().storages()[i].g)) <= 2e-5);
    }
}

TEST_CASE("the initial loss of the debug model is about ln(vocabulary) + 1/2") {
    // output weights of deviation 1/sqrt(dim), truncated at 3: logits of normed states are nearly N(0, 0.973)
    const DecoderConfig config = find_flavor(find_family("llama3"), "debugmodel");
    TestModel model(config, f32, {1, 200});
    TestBatch batch(1, 200, config.vocab);
    CHECK(close(run(model, batch).loss, std::log(2048.0) + 0.5, 0.1));
}

TEST_CASE("a tiny model memorises a batch in every type") {
    for (const StateTypes& types : all_types) {
        CAPTURE(name_of(types.master), name_of(types.compute));
        TestModel model(tiny_config(), types, {2, 9});
        TestBatch batch(2, 9, 37);
        const ParamGroups adam({.weight_decay = 0});
        double first = 0;
        for (uint64_t step = 1; step <= 60; ++step) {
            model.scalars = adam.begin_step(step, 1e-2, batch.valid_labels());
            model.zero_gradients();
            model.forward_backward(batch);
            measure_norm(model.exec, cpu_kernels(), model.parameters(), model.scalars, 1);
            adam.update(model.exec, cpu_kernels(), model.parameters(), model.scalars);
            if (step == 1) first = model.scalars.loss;
        }
        CHECK(first > 3);
        CHECK(model.scalars.loss < 0.5);
    }
}
