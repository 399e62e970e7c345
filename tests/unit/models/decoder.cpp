// SPDX-License-Identifier: Apache-2.0
// Initial values of a decoder (torchtitan's rules). A Decoder takes no memory before allocate().
#include "coeus/models/decoder.hpp"

#include "coeus/models/registry.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

struct Statistics {
    double deviation = 0, largest = 0;
    int64_t count = 0;
};

Statistics statistics(const Tensor& t) {
    Statistics s;
    s.count = t.count();
    for (const double x : values(t)) {
        s.deviation += x * x;
        s.largest = worse_of(s.largest, std::fabs(x));
    }
    s.deviation = std::sqrt(s.deviation / double(s.count));
    return s;
}

// Within five standard errors of the deviation of a normal distribution.
bool has_deviation(const Tensor& t, double expected) {
    const Statistics s = statistics(t);
    return close(s.deviation / expected, 1, 5 / std::sqrt(2 * double(s.count)));
}

DecoderConfig small_config() {
    DecoderConfig config = tiny_config();
    config.dim = 96;
    config.grouped().head_dim = 24;
    config.feed_forward.hidden = 128;
    config.layers = 3;
    config.vocab = 500;
    return config;
}

}  // namespace

TEST_CASE(
    "initial values: embeddings, projections that are smaller with depth, a truncated output, norms of one") {
    TestModel model(small_config(), {}, {1, 1});
    const auto weight = [&](const std::string& name) {
        return model.tensor(name + ".weight", &Storage::master);
    };
    CHECK(has_deviation(weight("tok_embeddings"), 1));
    CHECK(statistics(weight("tok_embeddings")).largest > 3.5);
    for (int layer = 0; layer < 3; ++layer) {
        const std::string prefix = "layers." + std::to_string(layer) + ".";
        INFO(prefix);
        const double scaled = 0.02 / std::sqrt(2.0 * (layer + 1));
        for (const std::string name : {"attention.wq", "attention.wk", "attention.wv", "feed_forward.w1"})
            CHECK(has_deviation(weight(prefix + name), 0.02));
        for (const std::string name : {"attention.wo", "feed_forward.w2", "feed_forward.w3"})
            CHECK(has_deviation(weight(prefix + name), scaled));
        for (const std::string name : {"attention_norm", "ffn_norm"})
            CHECK(values(weight(prefix + name)) == std::vector<double>(96, 1));
    }
    CHECK(values(weight("norm")) == std::vector<double>(96, 1));
    const Statistics output = statistics(weight("output"));
    const double std = 1 / std::sqrt(96.0);
    CHECK(output.largest <= 3 * std * (1 + 1e-6));
    CHECK(output.largest > 2.9 * std);
    CHECK(
        // truncation at 3 deviations lowers the deviation by 1.34 %
        close(output.deviation / std, 0.98658, 0.02));
}

TEST_CASE("initial values: norms that add 1 to their weights begin with weights of zero") {
    DecoderConfig config = small_config();
    set_attention(config, 7);
    TestModel model(config, {}, {1, 1});
    for (const std::string name : {"layers.0.attention_norm", "layers.1.post_attention_norm",
                                   "layers.2.post_ffn_norm", "layers.2.attention.k_norm", "norm"}) {
        CAPTURE(name);
        for (const double value : values(model.tensor(name + ".weight", &Storage::master))) CHECK(value == 0);
    }
}

TEST_CASE("initial values: a tied table begins as an output projection") {
    DecoderConfig config = small_config();
    config.tied = true;
    TestModel model(config, {}, {1, 1});
    const Statistics s = statistics(model.tensor("tok_embeddings.weight", &Storage::master));
    CHECK(s.largest <= 3 / std::sqrt(96.0) * (1 + 1e-6));
    CHECK(close(s.deviation * std::sqrt(96.0), 0.98658, 0.02));
}

TEST_CASE("no two parameters share random numbers, and seeds give different ones") {
    TestModel model(small_config(), {}, {1, 1}), other(small_config(), {}, {1, 1}, 1, 2);
    const std::vector<double> q = values(model.tensor("layers.0.attention.wq.weight", &Storage::master));
    CHECK(q != values(model.tensor("layers.1.attention.wq.weight", &Storage::master)));
    CHECK(q != values(model.tensor("layers.0.feed_forward.w1.weight", &Storage::master)));
    CHECK(q != values(other.tensor("layers.0.attention.wq.weight", &Storage::master)));
}

TEST_CASE("initial weights are the same in every type, up to rounding") {
    TestModel in_double(small_config(), {Dtype::f64, Dtype::f64}, {1, 1}),
        in_float(small_config(), {}, {1, 1}), in_bf16(small_config(), {Dtype::bf16, Dtype::bf16}, {1, 1}, 4);
    for (size_t i = 0; i < in_double.parameters().storages().size(); ++i) {
        const Tensor a = in_double.parameters().storages()[i].master,
                     b = in_float.parameters().storages()[i].master,
                     c = in_bf16.parameters().storages()[i].master;
        int wrong = 0;
        for (int64_t j = 0; j < a.count(); ++j) {
            wrong += element(b, j) != double(float(element(a, j)));
            wrong += element(c, j) != double(float(bf16(float(element(a, j)))));
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("the largest model can be declared without memory for it") {
    const DecoderConfig& config = find_flavor(find_family("llama3"), "405B");
    const int64_t before = resident_bytes();
    const Decoder decoder(config, {Dtype::f32, Dtype::bf16}, 64);
    CHECK(resident_bytes() - before < (int64_t(64) << 20));
    CHECK(decoder.parameters().count() == 405853388800);
    CHECK(decoder.segments().size() == 128);
    CHECK(decoder.positions() == 64);
}

TEST_CASE("each parameter of a decoder belongs to one segment, whichever rank has it") {
    for (const bool tied : {false, true})
        for (const int64_t depths : {0, 2})
            for (const DecoderPart& part : {DecoderPart{true, 0, 2, true}, DecoderPart{true, 0, 1, false},
                                            DecoderPart{false, 1, 2, true}}) {
                CAPTURE(tied, depths, part.text());
                DecoderConfig config = tiny_config(2, tied);
                config.mtp.layers = depths;
                const Decoder decoder(config, {}, 8, {}, {part}, {});
                std::vector<const Storage*> of_segments;
                for (const Segment& segment : decoder.segments()) {
                    CAPTURE(segment.name);
                    for (const Storage* storage : segment.storages) {
                        of_segments.push_back(storage);
                        const std::string& name = storage->params().front().name;
                        CHECK((name.starts_with(segment.name + ".") ||
                               (segment.name == "output" && name == "norm.weight")));
                    }
                }
                std::vector<const Storage*> all = decoder.parameters().model();
                std::ranges::sort(of_segments);
                std::ranges::sort(all);
                CHECK(of_segments == all);
            }
}
