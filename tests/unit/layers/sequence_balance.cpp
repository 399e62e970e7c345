// SPDX-License-Identifier: Apache-2.0
// The loss that balances the experts within each sequence, against the equations of the paper, which has sums
// over whole sequences in the place of sums over tokens.
#include "coeus/layers/moe.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>
#include <tuple>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

/// The choices and logits of the routers of a model, in the order of the layers, while this object exists.
class RouterWatch {
public:
    struct Seen {
        std::vector<double> experts, logits;
    };

    explicit RouterWatch(TestModel& model) : model_(model) {
        seen_ = &layers_;
        model_.kernels.route = [](Exec& exec, Tensor experts, Tensor weights, Tensor loads, Tensor logits,
                                  Tensor bias, const RouteOptions& options) {
            cpu_kernels().route(exec, experts, weights, loads, logits, bias, options);
            seen_->push_back({values(experts), values(logits)});
        };
    }
    ~RouterWatch() { model_.kernels.route = cpu_kernels().route; }
    RouterWatch(const RouterWatch&) = delete;
    RouterWatch& operator=(const RouterWatch&) = delete;

    const std::vector<Seen>& layers() const { return layers_; }

private:
    static inline std::vector<Seen>* seen_ = nullptr;
    TestModel& model_;
    std::vector<Seen> layers_;
};

/// L_Bal of one sequence (DeepSeek-V3, eq. 17-20), whose tokens are [first, first + length).
double paper_loss(const MoeConfig& m, const RouterWatch::Seen& seen, int64_t first, int64_t length) {
    double loss = 0;
    for (int64_t i = 0; i < m.experts; ++i) {
        double f = 0, p = 0;
        for (int64_t t = first; t < first + length; ++t) {
            for (int64_t j = 0; j < m.top_k; ++j)
                f += seen.experts[size_t(t * m.top_k + j)] == double(i) ? 1 : 0;
            double own = 0, all = 0;
            for (int64_t e = 0; e < m.experts; ++e) {
                const double logit = seen.logits[size_t(t * m.experts + e)],
                             score = m.score == ScoreFunction::sigmoid ? 1 / (1 + std::exp(-logit))
                                                                       : std::exp(logit);
                all += score;
                if (e == i) own = score;
            }
            p += own / all;
        }
        f *= double(m.experts) / double(m.top_k * length);
        loss += f * p / double(length);
    }
    return m.sequence_balance * loss;
}

DecoderConfig with_experts(ScoreFunction score, double coefficient) {
    DecoderConfig config = tiny_config(3);
    set_experts(config, 2);
    config.moe.score = score;
    config.moe.sequence_balance = coefficient;
    return config;
}

constexpr BatchShape three_sequences = {.sequences = 3, .seq_len = 8};

}  // namespace

TEST_CASE("sequence balance: the loss of every sequence and layer is that of the paper") {
    for (const ScoreFunction score : {ScoreFunction::softmax, ScoreFunction::sigmoid}) {
        const DecoderConfig config = with_experts(score, 0.3);
        TestModel model(config, {Dtype::f64, Dtype::f64}, three_sequences);
        TestBatch batch(three_sequences.sequences, three_sequences.seq_len, config.vocab);
        model.scalars.loss_scale = 1.0 / double(three_sequences.count());
        const RouterWatch routers(model);
        model.forward_backward(batch);
        REQUIRE(routers.layers().size() == 2);
        double expected = 0;
        for (const RouterWatch::Seen& layer : routers.layers())
            for (int64_t s = 0; s < three_sequences.sequences; ++s)
                expected +=
                    paper_loss(config.moe, layer, s * three_sequences.seq_len, three_sequences.seq_len);
        // every token is a label, so the losses of sequences have their mean
        CHECK(close(model.scalars.losses[decoder_loss::balance], expected / double(three_sequences.sequences),
                    1e-14));
        CHECK(model.scalars.losses[decoder_loss::balance] >
              2 * 0.3 * 0.9);  // an even load has alpha in each layer
    }
}

TEST_CASE(
    "sequence balance: all recomputation modes have the same loss, and the cross entropy stays as it is") {
    const auto train = [](double coefficient, const std::vector<Recompute>& recompute) {
        const DecoderConfig config = with_experts(ScoreFunction::sigmoid, coefficient);
        TestModel model(config, {Dtype::f64, Dtype::f64}, three_sequences, 1, 1, recompute);
        TestBatch batch(three_sequences.sequences, three_sequences.seq_len, config.vocab);
        batch.ignore_every(5);
        model.scalars.loss_scale = 1.0 / double(batch.valid_labels());
        model.zero_gradients();
        model.forward_backward(batch);
        const std::vector<double> gradient =
            values(model.tensor("layers.1.moe.router.gate.weight", &Storage::g));
        return std::tuple(model.scalars.losses[decoder_loss::balance], model.scalars.loss, gradient);
    };
    const auto [balance, loss, gradient] = train(0.3, {});
    for (const Recompute choice : {Recompute::operations, Recompute::block})
        CHECK(train(0.3, {choice, choice, choice}) == std::tuple(balance, loss, gradient));
    const auto [nothing, same, other] = train(0, {});
    CHECK(balance > 0);
    CHECK(nothing == 0);
    CHECK(same == loss);
    CHECK(other != gradient);
}

TEST_CASE("sequence balance: validation has the cross entropy alone") {
    const DecoderConfig config = with_experts(ScoreFunction::sigmoid, 0.3);
    TestModel model(config, {Dtype::f64, Dtype::f64}, three_sequences);
    TestBatch batch(three_sequences.sequences, three_sequences.seq_len, config.vocab);
    model.evaluate(batch);
    CHECK(model.scalars.losses[decoder_loss::balance] == 0);
    CHECK(model.scalars.loss > 0);
}
