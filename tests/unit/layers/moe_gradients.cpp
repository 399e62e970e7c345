// SPDX-License-Identifier: Apache-2.0
// The backward of mixtures of experts against finite differences, in double.
#include "coeus/layers/block.hpp"
#include "coeus/layers/exchanges/expert_exchange.hpp"
#include "coeus/layers/feed_forward.hpp"
#include "coeus/layers/moe.hpp"
#include "coeus/layers/shared_expert.hpp"
#include "support/catch.hpp"
#include "support/gradcheck.hpp"
#include "unit/layers/checked_layers.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

struct MoeCase {
    int64_t experts, hidden;
    RouteOptions route;
    Gate gate = {};
    bool biased = false;  ///< biases of router and experts, and a bias of the choice
    int64_t shared = 0;   ///< width of the shared experts; 0: none
    bool shared_gate = false;
    double sequence_balance = 0;
    Output norm_output = Output::kept;
    double capacity = 0;  ///< rows reach the experts in rounds, as from other ranks; 0: all at once
    bool norm_after = false;
};

// h + moe(norm(h)); the norm's output is kept or recomputed. With another norm: h + norm(moe(norm(h))).
std::string check_moe(const MoeCase& m, int64_t width, const TestBatch& batch) {
    const auto build = [&](Parameters& parameters) {
        auto norm = make_norm(parameters, "norm", width, NormKind::rms, m.norm_output);
        const LinearInput input(m.norm_output.place == Output::recomputed ? norm.get() : nullptr);
        const auto of_experts = [&](const std::string& name, int64_t rows, int64_t cols) {
            Param param = weight(name, m.experts * rows, cols);
            param.groups = m.experts;
            return param;
        };
        const Storage& gate = parameters.add(weight("gate", m.experts, width, 1.5));
        const Storage& w13 = parameters.add(of_experts("w13", 2 * m.hidden, width));
        const Storage& w2 = parameters.add(of_experts("w2", width, m.hidden));
        ExpertWeights weights = {.w13 = &w13, .w2 = &w2, .count = m.experts};
        const Storage *gate_bias = nullptr, *choice_bias = nullptr;
        if (m.biased) {
            gate_bias = &parameters.add(norm_weight("gate bias", m.experts));
            weights.b13 = &parameters.add(weight("b13", m.experts, 2 * m.hidden));
            weights.b2 = &parameters.add(weight("b2", m.experts, width));
            Param choice = norm_weight("choice bias", m.experts);
            choice.trainable = false;
            choice.is_exact = true;
            choice_bias = &parameters.add(choice);
        }
        std::unique_ptr<Sublayer> shared;
        if (m.shared > 0) {
            const Storage& s13 =
                parameters.add({weight("s1", m.shared, width), weight("s3", m.shared, width)});
            const Storage& s2 = parameters.add(weight("s2", width, m.shared));
            if (m.shared_gate)
                shared = std::make_unique<SharedExpert>(
                    TokenLinear(parameters.add(weight("shared gate", 1, width, 1.5)), input), s13, s2, input,
                    m.norm_output, m.gate.activation);
            else
                shared = std::make_unique<FeedForward>(s13, s2, input, m.norm_output, m.gate.activation);
        }
        std::vector<ResidualBlock::Part> parts(1);
        parts[0] = {std::move(norm),
                    std::make_unique<Moe>(Router(TokenLinear(gate, input, gate_bias), choice_bias, m.route, 0,
                                                 {m.sequence_balance, decoder_loss::balance}),
                                          m.capacity > 0 ? divided_experts({weights, m.gate})
                                                         : local_experts({weights, m.gate}),
                                          std::move(shared)),
                    m.norm_after ? std::make_unique<ResidualNorm>(
                                       parameters.add(norm_weight("norm after", width)), norm_eps)
                                 : nullptr};
        const std::shared_ptr<Block> block = std::make_shared<ResidualBlock>(std::move(parts));
        static const Communicator planned = Communicator::planned(0, 1, "experts");
        static Stream stream(Stream::Mode::deferred);
        const auto ranks = std::make_shared<RoundsExchange>(alone(), alone(), m.capacity, stream),
                   in_plan = std::make_shared<RoundsExchange>(planned, alone(), m.capacity, stream);
        const auto with_rounds = [=](Ctx& c) {
            return Ctx{.exec = c.exec,
                       .k = c.k,
                       .frame = c.frame,
                       .temp = c.temp,
                       .batch = c.batch,
                       .scalars = c.scalars,
                       .experts = &c.k == &dry_kernels() ? *in_plan : *ranks};
        };
        return CheckedLayer{[=](Ctx& c, Tensor x) {
                                Ctx in_rounds = with_rounds(c);
                                return block->forward(in_rounds, x).hidden();
                            },
                            [=](Ctx& c, Tensor dy) {
                                Ctx in_rounds = with_rounds(c);
                                return block->backward(in_rounds, dy).hidden();
                            }};
    };
    return gradcheck(build, batch,
                     {.x = {batch.sequences * batch.seq_len, width},
                      .entries = 12,
                      .balance_loss = m.sequence_balance > 0});
}

}  // namespace

TEST_CASE("moe: gradients with every kind of router, shared experts, biases, clamped and weighted gates") {
    const TestBatch batch(3, 5, no_vocab);
    const Gate clamped = {.limit = 0.9, .alpha = 1.702, .shift = 1, .interleaved = true},
               weighted = {.scales_input = true};
    for (const RouteOptions& route :
         {RouteOptions{.top_k = 2}, RouteOptions{.top_k = 2, .normalise = true},
          RouteOptions{.top_k = 1, .sigmoid = true},
          RouteOptions{.top_k = 6, .sigmoid = true, .normalise = true},
          RouteOptions{
              .top_k = 3, .groups = 3, .kept_groups = 2, .sigmoid = true, .normalise = true, .scale = 2.5},
          RouteOptions{.top_k = 2, .round_robin = true}})
        for (const Gate& gate : {Gate{}, clamped, weighted})
            for (const int64_t shared : {0, 5})
                for (const Output output : {Output::kept, Output::recomputed}) {
                    const bool biased = gate.interleaved;
                    CAPTURE(route.top_k, route.sigmoid, route.normalise, route.groups, biased,
                            gate.scales_input, shared, int(output.place));
                    CHECK(check_moe({.experts = 6,
                                     .hidden = 3,
                                     .route = route,
                                     .gate = gate,
                                     .biased = biased,
                                     .shared = shared,
                                     .norm_output = output},
                                    4, batch) == "");
                }
}

TEST_CASE("moe: gradients with a norm of the result, which the residual path does not pass") {
    for (const int64_t shared : {0, 5})
        for (const double capacity : {0.0, 0.3}) {
            CAPTURE(shared, capacity);
            CHECK(check_moe({.experts = 6,
                             .hidden = 3,
                             .route = {.top_k = 2},
                             .shared = shared,
                             .capacity = capacity,
                             .norm_after = true},
                            4, TestBatch(3, 5, no_vocab)) == "");
        }
}

TEST_CASE("moe: gradients of the loss that balances the experts within each sequence") {
    for (const RouteOptions& route :
         {RouteOptions{.top_k = 2}, RouteOptions{.top_k = 1, .sigmoid = true},
          RouteOptions{
              .top_k = 3, .groups = 3, .kept_groups = 2, .sigmoid = true, .normalise = true, .scale = 2.5}})
        for (const double coefficient : {0.1, 1000.0})  // with the other gradients, and almost alone
            for (const Output output : {Output::kept, Output::recomputed}) {
                CAPTURE(route.top_k, route.sigmoid, coefficient, int(output.place));
                CHECK(check_moe({.experts = 6,
                                 .hidden = 3,
                                 .route = route,
                                 .biased = true,
                                 .shared = 5,
                                 .sequence_balance = coefficient,
                                 .norm_output = output},
                                4, TestBatch(3, 5, no_vocab)) == "");
            }
}

TEST_CASE("moe: gradients of experts whose rows come in one round, in two and in many") {
    for (const double capacity : {0.001, 0.2, 0.9, 1.0, 10.0})
        for (const bool biased : {false, true})
            for (const Output output : {Output::kept, Output::recomputed}) {
                CAPTURE(capacity, biased, int(output.place));
                CHECK(check_moe({.experts = 5,
                                 .hidden = 3,
                                 .route = {.top_k = 2, .normalise = true},
                                 .biased = biased,
                                 .shared = biased ? 0 : 4,
                                 .norm_output = output,
                                 .capacity = capacity},
                                6, TestBatch(2, 7, no_vocab)) == "");
            }
}

TEST_CASE("moe: gradients of one expert, of one token, and of more experts than tokens") {
    CHECK(check_moe({.experts = 1, .hidden = 1, .route = {.top_k = 1}}, 3, TestBatch(1, 1, no_vocab)) == "");
    for (const Output output : {Output::kept, Output::recomputed})
        for (const double capacity : {0.0, 0.4})
            CHECK(check_moe({.experts = 5,
                             .hidden = 4,
                             .route = {.top_k = 2},
                             .gate = {.activation = Activation::gelu_tanh},
                             .shared = 3,
                             .shared_gate = true,
                             .norm_output = output,
                             .capacity = capacity},
                            5, TestBatch(3, 5, no_vocab)) == "");
    CHECK(check_moe({.experts = 1, .hidden = 4, .route = {.top_k = 1, .sigmoid = true}}, 3,
                    TestBatch(2, 3, no_vocab)) == "");
    CHECK(check_moe({.experts = 9, .hidden = 2, .route = {.top_k = 2, .normalise = true}}, 5,
                    TestBatch(1, 3, no_vocab)) == "");
}
