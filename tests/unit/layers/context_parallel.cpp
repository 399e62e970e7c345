// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/context_parallel.hpp"

#include "support/catch.hpp"

#include <map>
#include <string>
#include <vector>

using namespace coeus;

TEST_CASE("context parallel: every token belongs to one rank, and each rank's tokens are in order") {
    for (const Balancing balancing : {Balancing::none, Balancing::head_tail})
        for (const int ranks : {1, 2, 3, 8})
            for (const int64_t run : {1, 5}) {
                CAPTURE(int(balancing), ranks, run);
                const int64_t length = 2 * ranks * run;
                std::vector<int> owners(size_t(length), 0);
                for (int rank = 0; rank < ranks; ++rank) {
                    const SequencePart part = part_of_sequence(length, ranks, rank, balancing);
                    CHECK(part.count == length / ranks);
                    for (int64_t i = 0; i < part.count; ++i) {
                        ++owners.at(size_t(part.index(i)));
                        if (i > 0) CHECK(part.index(i) > part.index(i - 1));
                    }
                }
                CHECK(owners == std::vector<int>(size_t(length), 1));
            }
}

TEST_CASE("context parallel: the tokens of a rank") {
    CHECK(part_of_sequence(12, 3, 1, Balancing::none) == SequencePart{4, 4, 0});
    // runs of 2: 0 and 5, 1 and 4, 2 and 3
    CHECK(part_of_sequence(12, 3, 0, Balancing::head_tail) == SequencePart{4, 0, 8});
    CHECK(part_of_sequence(12, 3, 1, Balancing::head_tail) == SequencePart{4, 2, 4});
    CHECK(part_of_sequence(12, 3, 2, Balancing::head_tail) == SequencePart{4, 4, 0});
    // one rank accepts an odd length
    CHECK(part_of_sequence(5, 1, 0, Balancing::head_tail) == SequencePart{5, 0, 0});
    CHECK_THROWS_AS(part_of_sequence(9, 3, 0, Balancing::head_tail), LogicError);
    CHECK_THROWS_AS(part_of_sequence(10, 3, 0, Balancing::none), LogicError);
}

TEST_CASE("context parallel: head-tail gives every rank the same number of pairs of query and key") {
    const auto pairs = [](int rank, Balancing balancing) {
        const SequencePart part = part_of_sequence(64, 4, rank, balancing);
        int64_t sum = 0;
        for (int64_t i = 0; i < part.count; ++i) sum += part.index(i) + 1;
        return sum;
    };
    for (int rank = 0; rank < 4; ++rank) CHECK(pairs(rank, Balancing::head_tail) == 64 * 65 / 2 / 4);
    CHECK(pairs(3, Balancing::none) > 6 * pairs(0, Balancing::none));
}

namespace {

// The kernels and exchanges that a planning run reports.
struct Seen : KernelObserver {
    std::map<std::string, double> bytes;
    std::vector<std::string> names;  // in their order
    int open = 0;
    void begin(const char* name, double, double b) override {
        bytes[name] += b;
        names.push_back(name);
        ++open;
    }
    void end() override { --open; }
};

// One layer on rank 1 of 4, in bfloat16.
struct Layer {
    static constexpr int64_t P = 4, B = 3, S = 256, T = B * S / P, H = 8, K = 4, d = 16, e = 2, a = 4;
    int64_t temporaries = 0;
    Seen seen;

    Layer(ContextExchange exchange, bool backward) {
        const Communicator cp = Communicator::planned(1, int(P), "cp");
        Exec exec;
        const Observation observation = exec.observers.add(seen);
        Frame frame;
        Arena temp;
        StepScalars scalars;
        const Batch batch = {.sequences = B, .seq_len = S / P};
        const auto kv = make_kv_exchange({exchange, Balancing::head_tail}, cp, exec);
        Ctx c{exec, dry_kernels(), frame, temp, batch, scalars, *kv};
        const Tensor qkv(nullptr, Dtype::bf16, {T, (H + 2 * K) * d}), out(nullptr, Dtype::bf16, {T, H * d});
        const AttentionTensors t = {.layer = 0,
                                    .out = out,
                                    .lse = Tensor(nullptr, Dtype::f32, {H, T}),
                                    .q = qkv.slice_cols(0, H * d),
                                    .k = qkv.slice_cols(H * d, K * d),
                                    .v = qkv.slice_cols((H + K) * d, K * d),
                                    .shape = {B, S / P, H, K, d, 0.25}};
        if (backward)
            kv->backward(c, t, out);
        else
            kv->forward(c, t);
        temporaries = temp.peak();
    }
};

}  // namespace

TEST_CASE("context parallel: temporaries are as in doc/parallelism.md") {
    constexpr int64_t P = Layer::P, T = Layer::T, H = Layer::H, K = Layer::K, d = Layer::d, e = Layer::e,
                      a = Layer::a;
    CHECK(Layer(ContextExchange::all_gather, true).temporaries == P * T * K * d * (2 * e + 3 * a));
    CHECK(Layer(ContextExchange::ring, false).temporaries == T * d * (4 * K * e + H * a));
    CHECK(Layer(ContextExchange::ring, true).temporaries == T * d * (4 * K * e + 6 * K * a + H * a));
    CHECK(Layer(ContextExchange::heads, true).temporaries == T * d * (9 * H + 6 * K) * e);
    for (const auto exchange : {ContextExchange::all_gather, ContextExchange::heads})
        CHECK(Layer(exchange, false).temporaries < Layer(exchange, true).temporaries);
}

TEST_CASE("context parallel: an observer sees each exchange") {
    constexpr int64_t P = Layer::P, T = Layer::T, H = Layer::H, K = Layer::K, d = Layer::d, e = Layer::e,
                      a = Layer::a;
    for (const auto exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads}) {
        Layer forward(exchange, false), backward(exchange, true);
        CHECK(forward.seen.open == 0);
        CHECK(backward.seen.open == 0);
        auto &f = forward.seen.bytes, &b = backward.seen.bytes;
        switch (exchange) {
            case ContextExchange::all_gather:
                CHECK(f["gather_keys"] == P * T * 2 * K * d * e);
                CHECK(b["gather_keys"] == P * T * 2 * K * d * e);
                CHECK(b["scatter_keys"] == P * T * 2 * K * d * a);
                break;
            case ContextExchange::ring:
                CHECK(f["pass_keys_on"] == (P - 1) * T * 2 * K * d * e);
                CHECK(b["pass_keys_on"] == (P - 1) * T * 2 * K * d * e);
                CHECK(b["pass_gradients_on"] == P * T * 2 * K * d * a);
                break;
            case ContextExchange::heads:
                CHECK(f["tokens_to_heads"] == T * (H + 2 * K) * d * e);
                CHECK(f["heads_to_tokens"] == T * H * d * e);
                CHECK(b["tokens_to_heads"] == T * (3 * H + 2 * K) * d * e);
                CHECK(b["heads_to_tokens"] == T * (H + 2 * K) * d * e);
                break;
        }
    }
}

TEST_CASE(
    "context parallel: the ring's backward waits for gradients only after the attention of the next step") {
    std::vector<std::string> order = Layer(ContextExchange::ring, true).seen.names;
    std::erase_if(
        order, [](const auto& name) { return name != "attention_backward" && name != "pass_gradients_on"; });
    CHECK(order == std::vector<std::string>{"attention_backward", "attention_backward", "pass_gradients_on",
                                            "attention_backward", "pass_gradients_on", "attention_backward",
                                            "pass_gradients_on", "pass_gradients_on"});
}
