// SPDX-License-Identifier: Apache-2.0
// Attention against its formula, with every choice of what a family may add to it. The mask is written as a
// condition on a query and a key, not as the first key of a query. Gradients and many ranks cannot see a mask
// that is not there at all: they compare one wrong result with another.
#include "support/catch.hpp"
#include "unit/layers/attention_layers.hpp"
#include "unit/layers/formulas.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

// The weights of a parameter, in rows of `cols` numbers.
Matrix weights_of(const Parameters& parameters, const std::string& name, int64_t cols) {
    Matrix m;
    for (const Storage& storage : parameters.storages())
        for (const Param& param : storage.params()) {
            if (param.name != name) continue;
            const std::vector<double> all = values(storage.rows_of(param, storage.w));
            for (auto at = all.begin(); at != all.end(); at += cols) m.emplace_back(at, at + cols);
        }
    REQUIRE_FALSE(m.empty());
    return m;
}
std::vector<double> vector_of(const Parameters& parameters, const std::string& name, int64_t size) {
    return weights_of(parameters, name, size).at(0);
}

void add(Matrix& x, const std::vector<double>& row) {
    for (auto& own : x)
        for (size_t j = 0; j < row.size(); ++j) own[j] += row[j];
}
void add(Matrix& x, const Matrix& y) {
    for (size_t t = 0; t < x.size(); ++t)
        for (size_t j = 0; j < x[t].size(); ++j) x[t][j] += y[t][j];
}
Matrix columns(const Matrix& x, int64_t first, int64_t count) {
    Matrix part;
    for (const auto& row : x) part.emplace_back(row.begin() + first, row.begin() + first + count);
    return part;
}

// RMSNorm of each `weight.size()` columns.
void normalise(Matrix& x, const std::vector<double>& weight, const NormForm& form) {
    for (auto& row : x)
        for (size_t head = 0; head < row.size(); head += weight.size()) {
            double squares = 0;
            for (size_t j = 0; j < weight.size(); ++j) squares += row[head + j] * row[head + j];
            const double rms = std::sqrt(squares / double(weight.size()) + form.eps);
            for (size_t j = 0; j < weight.size(); ++j) row[head + j] *= (form.offset + weight[j]) / rms;
        }
}

// Rotates the pairs of `width` columns from `first` on of each head by angles position * 100^(-2j/width).
void rotate(Matrix& x, const std::vector<int32_t>& positions, int64_t head_dim, int64_t first, int64_t width,
            RopeLayout layout) {
    for (size_t t = 0; t < x.size(); ++t)
        for (size_t head = 0; head < x[t].size(); head += size_t(head_dim))
            for (int64_t j = 0; j < width / 2; ++j) {
                const bool interleaved = layout == RopeLayout::interleaved;
                double* of_head = &x[t][head] + first;
                double &a = of_head[interleaved ? 2 * j : j],
                       &b = of_head[interleaved ? 2 * j + 1 : j + width / 2];
                const double angle = positions[t] * std::pow(100, -2.0 * double(j) / double(width));
                const double old = a;
                a = old * std::cos(angle) - b * std::sin(angle);
                b = old * std::sin(angle) + b * std::cos(angle);
            }
}

// Both are tokens of the batch.
bool is_visible(const TestBatch& data, const AttentionHeads& a, int64_t query, int64_t key) {
    const int64_t i = query % data.seq_len, j = key % data.seq_len;
    if (query / data.seq_len != key / data.seq_len || j > i) return false;
    if (!data.document_start.empty() &&
        data.document_start[size_t(query)] != data.document_start[size_t(key)])
        return false;
    // chunks are counted from the first token of the sequence, also if documents begin in it
    return (a.window == 0 || i - j < a.window) && (a.chunk == 0 || i / a.chunk == j / a.chunk);
}

// The values that each head of a query sees, weighted by the softmax of their scores. A sink is a score
// without a value.
Matrix attended(const TestBatch& data, const AttentionHeads& a, const Matrix& q, const Matrix& k,
                const Matrix& v, const std::vector<double>& sinks) {
    const double scale = a.scale > 0 ? a.scale : 1 / std::sqrt(double(a.head_dim));
    Matrix out(q.size(), std::vector<double>(size_t(a.heads * a.value_width()), 0));
    for (size_t t = 0; t < q.size(); ++t)
        for (int64_t h = 0; h < a.heads; ++h) {
            const int64_t group = h / (a.heads / a.kv_heads);
            std::vector<double> scores(q.size());
            double total = sinks.empty() ? 0 : std::exp(sinks[size_t(h)]);
            for (size_t s = 0; s < q.size(); ++s) {
                if (!is_visible(data, a, int64_t(t), int64_t(s))) continue;
                double score = 0;
                for (int64_t j = 0; j < a.head_dim; ++j)
                    score += q[t][size_t(h * a.head_dim + j)] * k[s][size_t(group * a.head_dim + j)];
                total += scores[s] = std::exp(scale * score);
            }
            for (size_t s = 0; s < q.size(); ++s)
                for (int64_t j = 0; j < a.value_width(); ++j)
                    out[t][size_t(h * a.value_width() + j)] +=
                        scores[s] / total * v[s][size_t(group * a.value_width() + j)];
        }
    return out;
}

// The largest difference from the formula, of attention with a residual.
double error_of_attention(const TestBatch& data, const AttentionHeads& a, const Extra& extra) {
    constexpr int64_t width = 5;
    Bench bench(data, 1 << 17);
    const AttentionLayer layer(bench.parameters, a, width, data.seq_len, extra);
    bench.allocate();
    const auto weights = [&](const char* name, int64_t cols) {
        return weights_of(bench.parameters, name, cols);
    };
    const auto vector = [&](const char* name, int64_t size) {
        return vector_of(bench.parameters, name, size);
    };
    const int64_t tokens = data.sequences * data.seq_len;
    const Tensor x = bench.random(tokens, width), residual = bench.random(tokens, width);

    Matrix q = product(matrix(x), weights("wq", width)), k = product(matrix(x), weights("wk", width)),
           v = product(matrix(x), weights("wv", width));
    if (extra.biases) {
        const int64_t keys = a.query_cols(), values = keys + a.key_cols();
        const Matrix bias = {vector("wqkv bias", values + a.value_cols())};
        add(q, columns(bias, 0, a.query_cols())[0]);
        add(k, columns(bias, keys, a.key_cols())[0]);
        add(v, columns(bias, values, a.value_cols())[0]);
    }
    for (const bool of_queries : {true, false}) {
        Matrix& heads = of_queries ? q : k;
        const auto turn = [&] {
            rotate(heads, data.positions, a.head_dim, 0, extra.rotated > 0 ? extra.rotated : a.head_dim,
                   extra.layout);
        };
        if (extra.norm == HeadNorm::last) turn();
        const char* const weight = of_queries ? "q_norm" : "k_norm";
        if (extra.norm == HeadNorm::of_all)
            normalise(heads, vector(weight, of_queries ? a.query_cols() : a.key_cols()), {heads_eps, 1});
        else if (extra.norm != HeadNorm::none)
            normalise(heads,
                      extra.norm == HeadNorm::first ? vector(weight, a.head_dim)
                                                    : std::vector<double>(size_t(a.head_dim), 1),
                      heads_eps);
        if (extra.norm != HeadNorm::last && extra.norm != HeadNorm::only) turn();
    }
    const Temperature& temperature = extra.temperature;
    if (temperature)
        for (size_t t = 0; t < q.size(); ++t)
            for (double& element : q[t])
                element *= 1 + temperature.scale *
                                   std::log(1 + std::floor(double(data.positions[t] + temperature.offset) /
                                                           temperature.floor));
    Matrix expected =
        product(attended(data, a, q, k, v, extra.sinks ? vector("sinks", a.heads) : std::vector<double>()),
                weights("wo", a.heads * a.value_width()));
    if (extra.biases) add(expected, vector("wo bias", width));
    add(expected, matrix(residual));
    return largest_difference(expected, layer.attention.forward(bench.c, x, residual));
}

double error_of_latent_attention(const TestBatch& data, const LatentHeads& h) {
    constexpr int64_t width = 5;
    const LatentShape& s = h.shape;
    const int64_t head_dim = s.nope + s.rope, tokens = data.sequences * data.seq_len;
    Bench bench(data, 1 << 17);
    const LatentLayer layer(bench.parameters, h, width, data.seq_len, Output::kept);
    bench.allocate();
    const Tensor x = bench.random(tokens, width), residual = bench.random(tokens, width);
    const auto latents = [&](const char* matrix_name, const char* norm_name, int64_t rank) {
        Matrix all = product(matrix(x), weights_of(bench.parameters, matrix_name, width));
        Matrix own = columns(all, 0, rank);
        normalise(own, vector_of(bench.parameters, norm_name, rank), h.norm);
        return std::pair(own, columns(all, rank, int64_t(all[0].size()) - rank));
    };
    Matrix q = product(h.q_rank > 0 ? latents("wq_a", "q_norm", h.q_rank).first : matrix(x),
                       weights_of(bench.parameters, "wq", h.q_rank > 0 ? h.q_rank : width));
    auto [kv_latents, pe] = latents("wkv_a", "kv_norm", h.kv_rank);
    const Matrix kv = product(kv_latents, weights_of(bench.parameters, "wkv_b", h.kv_rank));
    rotate(q, data.positions, head_dim, s.nope, s.rope, h.layout);
    rotate(pe, data.positions, s.rope, 0, s.rope, h.layout);
    Matrix k(kv.size()), v(kv.size());
    for (size_t t = 0; t < kv.size(); ++t)
        for (auto at = kv[t].begin(); at != kv[t].end(); at += s.nope + s.value) {
            k[t].insert(k[t].end(), at, at + s.nope);
            k[t].insert(k[t].end(), pe[t].begin(), pe[t].end());
            v[t].insert(v[t].end(), at + s.nope, at + s.nope + s.value);
        }
    const AttentionHeads heads = {.heads = s.heads,
                                  .kv_heads = s.heads,
                                  .head_dim = head_dim,
                                  .value_dim = s.value,
                                  .scale = h.scale,
                                  .window = h.window};
    Matrix expected =
        product(attended(data, heads, q, k, v, {}), weights_of(bench.parameters, "wo", s.heads * s.value));
    add(expected, matrix(residual));
    return largest_difference(expected, layer.attention.forward(bench.c, x, residual));
}

// Documents of five tokens: they end in windows of three tokens and in chunks of four.
TestBatch batch_of(bool documents) {
    TestBatch batch(2, 13, no_vocab);
    if (documents) batch.split_documents(5, true);
    return batch;
}

}  // namespace

TEST_CASE("attention: values with grouped queries, documents, both RoPE layouts, also of a part of a head") {
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split})
        for (const bool documents : {false, true})
            for (const int64_t rotated : {0, 2, 4})
                for (const int64_t kv_heads : {1, 2, 4}) {
                    CAPTURE(int(layout), documents, rotated, kv_heads);
                    CHECK(error_of_attention(batch_of(documents),
                                             {.heads = 4, .kv_heads = kv_heads, .head_dim = 6},
                                             {.layout = layout, .rotated = rotated}) <= 1e-12);
                }
}

TEST_CASE("attention: values with every choice of documents, window, chunk, norms of heads and the rest") {
    for (int number = 0; number < 5 << 6; ++number) {
        const auto bit = [&](int place) { return (number >> place & 1) != 0; };
        const bool documents = bit(0), vectors = bit(3);
        const AttentionHeads heads = {.heads = 4,
                                      .kv_heads = 2,
                                      .head_dim = 6,
                                      .value_dim = bit(4) ? 3 : 0,
                                      .scale = bit(4) ? 0.7 : 0,
                                      .window = bit(1) ? 3 : 0,
                                      .chunk = bit(2) ? 4 : 0};
        const auto norm = HeadNorm(number >> 6);
        CAPTURE(documents, heads.window, heads.chunk, heads.value_dim, vectors, bit(5), int(norm));
        CHECK(error_of_attention(
                  batch_of(documents), heads,
                  {.norm = norm,
                   .biases = vectors,
                   .sinks = vectors,
                   .temperature = {.scale = bit(5) ? 0.6 : 0, .floor = 3, .offset = bit(4) ? 0 : 1}}) <=
              1e-12);
    }
}

TEST_CASE("latent attention: values with every choice of documents, window and latents of queries") {
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split})
        for (const bool documents : {false, true})
            for (const int64_t window : {0, 3})
                for (const int64_t q_rank : {0, 4}) {
                    CAPTURE(int(layout), documents, window, q_rank);
                    CHECK(error_of_latent_attention(batch_of(documents),
                                                    {.shape = {.heads = 3, .nope = 5, .rope = 4, .value = 7},
                                                     .q_rank = q_rank,
                                                     .kv_rank = 6,
                                                     .norm = {heads_eps, 1},
                                                     .scale = 0.4,
                                                     .layout = layout,
                                                     .window = window}) <= 1e-12);
                }
}
