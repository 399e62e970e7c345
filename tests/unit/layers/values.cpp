// SPDX-License-Identifier: Apache-2.0
// The forward of the layers against the formulas written out in plain loops, in double. (For their gradients
// see gradients.cpp. Only this test detects a wrong constant, such as eps or the scale of scores.)
#include "../../../src/models/decoder_head.hpp"
#include "coeus/layers/feed_forward.hpp"
#include "coeus/layers/norm.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "unit/layers/formulas.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("norms: values with an eps large enough to matter") {
    constexpr double eps = 0.25;
    Bench bench(TestBatch(1, 3, 1));
    const Storage &rms = bench.weight("rms", {5}), &layer = bench.weight("layer", {5});
    bench.allocate();
    const Tensor x = bench.random(3, 5);
    Matrix rms_y, layer_y, plain_y;
    for (const auto& row : matrix(x)) {
        double mean = 0, squares = 0, variance = 0;
        for (const double v : row) {
            mean += v / 5;
            squares += v * v / 5;
        }
        for (const double v : row) variance += (v - mean) * (v - mean) / 5;
        rms_y.emplace_back();
        layer_y.emplace_back();
        plain_y.emplace_back();
        for (size_t j = 0; j < 5; ++j) {
            rms_y.back().push_back(row[j] / std::sqrt(squares + eps) * element(rms.w, int64_t(j)));
            plain_y.back().push_back((row[j] - mean) / std::sqrt(variance + eps));
            layer_y.back().push_back(plain_y.back().back() * element(layer.w, int64_t(j)));
        }
    }
    CHECK(largest_difference(rms_y, RmsNorm(rms, eps).forward(bench.c, x)) <= 1e-14);
    CHECK(largest_difference(layer_y, LayerNorm(&layer, eps).forward(bench.c, x)) <= 1e-14);
    CHECK(largest_difference(plain_y, LayerNorm(nullptr, eps).forward(bench.c, x)) <= 1e-14);
}

TEST_CASE("feed-forward: values with a residual") {
    Bench bench(TestBatch(1, 3, 1));
    const Storage& w13 = bench.parameters.add({{.name = "w1", .shape = {7, 4}, .init = Init::normal(0.7)},
                                               {.name = "w3", .shape = {7, 4}, .init = Init::normal(0.7)}});
    const Storage& w2 = bench.weight("w2", {4, 7});
    bench.allocate();
    const Tensor x = bench.random(3, 4), residual = bench.random(3, 4);
    Matrix gate = product(matrix(x), matrix(w13.rows_of(w13.params()[0], w13.w)));
    const Matrix up = product(matrix(x), matrix(w13.rows_of(w13.params()[1], w13.w)));
    for (size_t t = 0; t < 3; ++t)
        for (size_t j = 0; j < 7; ++j) gate[t][j] *= up[t][j] / (1 + std::exp(-gate[t][j]));
    Matrix expected = product(gate, matrix(w2.w));
    for (size_t t = 0; t < 3; ++t)
        for (size_t j = 0; j < 4; ++j) expected[t][j] += element(residual, int64_t(4 * t + j));
    CHECK(largest_difference(expected, FeedForward(w13, w2).forward(bench.c, x, residual)) <= 1e-13);
}

TEST_CASE("loss head: the loss is the scaled sum over valid labels, added to the previous value") {
    // the second case has chunks of 256 and 44 tokens
    struct Sizes {
        int64_t tokens, vocab;
        double scale;  // of the logits
    };
    for (const auto& [tokens, vocab, scale] : {Sizes{5, 7, 1}, {5, 7, 0.6}, {150, 4001, 1}}) {
        CAPTURE(tokens, scale);
        TestBatch data(2, tokens, vocab);
        data.ignore_every(3);
        Bench bench(data, 1 << 24);
        const Storage &norm = bench.weight("norm", {4}), &output = bench.weight("output", {vocab, 4});
        bench.allocate();
        const DecoderHead head(std::make_unique<RmsNorm>(norm, 1e-5), output, 0, scale);
        const Tensor x = bench.random(2 * tokens, 4);
        Matrix logits = product(matrix(RmsNorm(norm, 1e-5).forward(bench.c, x)), matrix(output.w));
        for (auto& row : logits)
            for (double& logit : row) logit *= scale;
        double sum = 0;
        for (size_t t = 0; t < logits.size(); ++t) {
            if (data.labels[t] == -100) continue;
            double total = 0;
            for (const double l : logits[t]) total += std::exp(l);
            sum += std::log(total) - logits[t][size_t(data.labels[t])];
        }
        bench.scalars.loss_scale = 0.25;
        bench.scalars.loss = 100;
        head.evaluate(bench.c, x);
        CHECK(relatively_close(bench.scalars.loss, 100 + 0.25 * sum, 1e-14));
        head.forward(bench.c, x);
        CHECK(relatively_close(bench.scalars.loss, 100 + 0.5 * sum, 1e-14));
        const Tensor out = bench.frame.keep(Dtype::f64, {2 * tokens, vocab});
        head.predict(bench.c, out, x);
        CHECK(largest_difference(logits, out) <= 1e-13);
    }
}

TEST_CASE("loss head: the z-loss is in the loss and in its own part, and not in validation") {
    // the second case has chunks of 256 and 44 tokens
    for (const auto& [tokens, vocab] : {std::pair<int64_t, int64_t>(5, 7), {150, 4001}}) {
        TestBatch data(2, tokens, vocab);
        data.ignore_every(3);
        Bench bench(data, 1 << 24);
        const Storage &norm = bench.weight("norm", {4}), &output = bench.weight("output", {vocab, 4});
        bench.allocate();
        const auto head = [&](double z) {
            return DecoderHead(std::make_unique<RmsNorm>(norm, 1e-5), output, z);
        };
        const Tensor x = bench.random(2 * tokens, 4);
        double squares = 0;
        const Matrix logits = product(matrix(RmsNorm(norm, 1e-5).forward(bench.c, x)), matrix(output.w));
        for (size_t t = 0; t < logits.size(); ++t) {
            if (data.labels[t] == -100) continue;
            double total = 0;
            for (const double l : logits[t]) total += std::exp(l);
            squares += std::log(total) * std::log(total);
        }
        bench.scalars.loss_scale = 0.25;
        const auto loss_of = [&](const auto& work) {
            bench.scalars.loss = bench.scalars.losses[decoder_loss::z] = 0;
            work();
            return bench.scalars.loss;
        };
        const double validated = loss_of([&] { head(0.5).evaluate(bench.c, x); });
        CHECK(bench.scalars.losses[decoder_loss::z] == 0);
        CHECK(loss_of([&] { head(0).forward(bench.c, x); }) == validated);
        CHECK(bench.scalars.losses[decoder_loss::z] == 0);
        const double trained = loss_of([&] { head(0.5).forward(bench.c, x); });
        CHECK(relatively_close(bench.scalars.losses[decoder_loss::z], 0.25 * 0.5 * squares, 1e-14));
        CHECK(relatively_close(trained, validated + 0.25 * 0.5 * squares, 1e-14));
    }
}

TEST_CASE("loss head: chunks have 8 MiB of logits, 1 GiB or 256 MiB on a GPU, and at least 256 tokens") {
    struct Chunks : KernelObserver {
        int seen = 0;
        void begin(const char* kernel, double, double) override {
            seen += std::string(kernel) == "cross_entropy";
        }
        void end() override {}
    };
    const auto chunks = [](int64_t tokens, int64_t vocab, Dtype dtype, int64_t bytes = cpu_chunk_bytes) {
        Parameters parameters({dtype, dtype});
        const Storage &norm = parameters.add({.name = "norm", .shape = {4}}),
                      &output = parameters.add({.name = "output", .shape = {vocab, 4}});
        const Tensor ids(nullptr, Dtype::i32, {tokens});
        const Batch batch = {.sequences = 1, .seq_len = tokens, .tokens = ids, .labels = ids};
        Chunks count;
        Exec exec(Processor{.chunk_bytes = bytes});
        const Observation observation = exec.observers.add(count);
        Frame frame;
        Arena temp;
        StepScalars scalars;
        Ctx c{exec, dry_kernels(), frame, temp, batch, scalars};
        DecoderHead(std::make_unique<RmsNorm>(norm, 1e-5), output, 0)
            .evaluate(c, Tensor(nullptr, dtype, {tokens, 4}));
        return count.seen;
    };
    CHECK(chunks(1024, 1024, Dtype::f64) == 1);
    CHECK(chunks(1025, 1024, Dtype::f64) == 2);
    CHECK(chunks(2048, 1024, Dtype::f32) == 1);
    CHECK(chunks(2049, 1024, Dtype::f32) == 2);
    CHECK(chunks(2049, 1000, Dtype::f32) == 2);  // 2097 rows would fit: rounded down to a multiple of 64
    CHECK(chunks(2048 + 2049, 1000, Dtype::f32) == 3);
    CHECK(chunks(256, 100000, Dtype::f64) == 1);
    CHECK(chunks(1000, 100000, Dtype::f64) == 4);
    const auto [large, small] = gpu_chunk_bytes;
    CHECK(chunks(1024, 128256, Dtype::bf16, small) == 1);
    CHECK(chunks(1025, 128256, Dtype::bf16, small) == 2);
    CHECK(chunks(512, 128256, Dtype::f32, small) == 1);
    CHECK(chunks(513, 128256, Dtype::f32, small) == 2);
    CHECK(chunks(256, 1000000, Dtype::f32, small) == 1);
    CHECK(chunks(4160, 128256, Dtype::bf16, large) == 1);
    CHECK(chunks(4161, 128256, Dtype::bf16, large) == 2);
}

TEST_CASE("loss head: if all labels are -100 there is no loss and no gradient") {
    TestBatch data(1, 4, 5);
    data.ignore_every(1);
    Bench bench(data);
    const Storage &norm = bench.weight("norm", {3}), &output = bench.weight("output", {5, 3});
    bench.allocate();
    const DecoderHead head(std::make_unique<RmsNorm>(norm, 1e-5), output, 0);
    head.forward(bench.c, bench.random(4, 3));
    CHECK(bench.scalars.loss == 0);
    CHECK(values(head.backward(bench.c).hidden()) == std::vector<double>(12, 0));
    CHECK(values(output.g) == std::vector<double>(15, 0));
}
