// SPDX-License-Identifier: Apache-2.0
// Expert parallelism (Lepikhin et al. 2020, GShard): each of R ranks has E/R experts. A rank sorts its tokens
// by expert and sends them to the ranks of their experts, as Ctx::experts does it (expert_exchange.hpp). The
// results come back on the same way.
//
//   sender      x [n, D] -> sorted by expert [s, D] -> all-to-all            s = n k, or more in blocks
//   receiver    arrived [c, D], by rank -> grouped by expert -> products -> by rank again -> all-to-all
//   sender      results [s, D] -> y
//
// Only the rows of the first round are kept. The backward brings those of later rounds again, and computes
// their first product again.
//
// If P ranks divide each expert, they all send and receive the same rows, and their results are parts of
// sums.
#include "coeus/layers/exchanges/expert_exchange.hpp"
#include "coeus/layers/exchanges/sequence_parallel.hpp"
#include "coeus/layers/experts.hpp"

namespace coeus {

namespace {

// What a rank sends, all kept: slots i32[n, k], the place of each assignment among the rows that are sent;
// sources i32[rows], its inverse; counts i32[R, E]; weights acc [rows]; and the input x [T/P, D], if there
// are later rounds.
struct Sent {
    Tensor slots, sources, counts, weights, x;
    int64_t top_k() const { return slots.cols(); }
    int64_t rows() const { return sources.count(); }
};

// The rows of a round: slots i32[c], the place of each arriving row among the grouped ones; sources, its
// inverse, -1 in padding.
struct Arrived : ExpertProducts::Kept {
    Tensor slots, sources;
};

// What travels for each assignment: a row, and one number if `numbers` is present.
struct Rows {
    Tensor rows, numbers;
};

// An exchange on the stream of the experts' ranks, beside the computation. `work` gets the stream's Exec.
template <class Work>
class Underway {
public:
    Underway(Ctx& c, Exchange kind, Tensor moved, Work work) : c_(c), kind_(kind), work_(std::move(work)) {
        const ObservedExchange noted(c.exec, kind, moved);  // all of it, if the stream is eager
        pending_ = c.experts.stream().run([this] { work_(c_.experts.stream().exec()); });
    }
    Underway(const Underway&) = delete;
    Underway& operator=(const Underway&) = delete;

    void join() {
        const ObservedExchange noted(c_.exec, kind_);
        pending_.join();
    }
    // The same, but in the first round other work comes first, if there is any. Not in later rounds: other
    // ranks, with which this one makes other exchanges, may have another number of them, and all must change
    // between their computations at the same places.
    void join_in(int64_t round) {
        if (round == 0) c_.experts.meanwhile();
        join();
    }

private:
    Ctx& c_;
    Exchange kind_;
    Work work_;
    Pending pending_;  // last, since it waits for the others' use
};

constexpr auto nothing = [] {};

// What is computed beside the exchange of counts, and beside that of the first rows: `work` beside the rows,
// which take longer, unless another computation continues while they are waited for.
struct Beside {
    Beside(Ctx& c, FunctionRef<void()> work)
        : counts(c.experts.has_meanwhile() ? work : FunctionRef<void()>(nothing)),
          rows(c.experts.has_meanwhile() ? FunctionRef<void()>(nothing) : work) {}
    FunctionRef<void()> counts, rows;
};

class DividedExperts : public Experts {
public:
    explicit DividedExperts(const ExpertProducts& products) : products_(products) {}

    Tensor forward(Ctx& c, Tensor x, const Routed& routed, FunctionRef<Tensor()> beside) const override;
    void rebuild(Ctx& c, Tensor x, const Routed& routed, FunctionRef<void()> beside) const override {
        const Scope temps(c.temp);
        const Sent sent = send(c, x, routed);
        const Beside during(c, beside);
        first_round(c, sent, sorted_inputs(c, sent, x, during.counts), during.rows);
    }
    Tensor backward(Ctx& c, Tensor dy, Tensor dx, FunctionRef<Tensor()> beside) const override;

private:
    using Allocate = FunctionRef<Tensor(Dtype, const Shape&)>;

    Sent send(Ctx& c, Tensor x, const Routed& routed) const;
    Tensor sorted(Ctx& c, const Sent& sent, Tensor tokens) const;
    Tensor sorted_inputs(Ctx& c, const Sent& sent, Tensor x, FunctionRef<void()> beside) const;
    Arrived first_round(Ctx& c, const Sent& sent, Tensor inputs, FunctionRef<void()> beside) const;
    Arrived later_round(Ctx& c, const Sent& sent, int64_t round, Tensor inputs) const;
    Arrived bring(Ctx& c, const Sent& sent, int64_t round, Tensor inputs, Allocate alloc,
                  FunctionRef<void()> beside) const;
    void return_rows(Ctx& c, int64_t round, const Arrived& arrived, const Rows& grouped, const Rows& sorted,
                     FunctionRef<void()> beside) const;
    ExpertRows rows_of(Ctx& c, const Sent& sent) const {
        return c.experts.rows_of(sent.slots.rows(), sent.top_k(), products_.experts());
    }
    ExpertProducts products_;

    // Sorted rows of the selected round to their experts, where they arrive in the order of the ranks.
    auto to_experts(Ctx& c, Rows sorted, Rows arrived) const {
        return Underway(c, Exchange::rows_to_experts, arrived.rows, [&c, sorted, arrived](Exec& exec) {
            c.experts.expert_ranks().grouped(exec, [&] {
                c.experts.send(exec, arrived.rows, sorted.rows);
                if (sorted.numbers) c.experts.send(exec, arrived.numbers, sorted.numbers);
            });
        });
    }
    // The other way: back to their places among the sorted rows.
    auto from_experts(Ctx& c, Rows by_rank, Rows sorted) const {
        return Underway(c, Exchange::rows_from_experts, by_rank.rows, [&c, by_rank, sorted](Exec& exec) {
            c.experts.expert_ranks().grouped(exec, [&] {
                c.experts.send_back(exec, sorted.rows, by_rank.rows);
                if (by_rank.numbers) c.experts.send_back(exec, sorted.numbers, by_rank.numbers);
            });
        });
    }
};

// The tokens that this rank sends: its own, or those of all ranks that divide each expert.
Tensor tokens_of(Ctx& c, Tensor own) {
    return c.experts.tensor_ranks().size() == 1 ? own : gather_tokens(c, own);
}

Sent DividedExperts::send(Ctx& c, Tensor x, const Routed& routed) const {
    const int64_t tokens = x.rows() * c.experts.tensor_ranks().size(), k = routed.experts.cols(),
                  ranks = c.experts.expert_ranks().size(), experts = products_.experts() * ranks;
    const ExpertRows all = c.experts.rows_of(tokens, k, products_.experts());
    Sent sent;
    sent.slots = c.frame.keep(Dtype::i32, {tokens, k});
    sent.sources = c.frame.keep(Dtype::i32, {c.experts.sent(all)});
    sent.counts = c.frame.keep(Dtype::i32, {ranks, experts});
    sent.weights = c.frame.keep(routed.weights.dtype, {sent.rows()});
    if (c.experts.capacity(all).later > 0) {
        sent.x = c.frame.keep(x.dtype, x.shape);
        c.k.cast(c.exec, sent.x, x);
    }
    const Scope temps(c.temp);
    c.experts.place(c, sent.slots, sent.sources,
                    sent.counts.slice_rows(c.experts.expert_ranks().rank(), 1).reshape({experts}),
                    tokens_of(c, routed.experts));
    c.k.gather_rows(c.exec, column(sent.weights), column(tokens_of(c, routed.weights)), sent.sources, 1);
    return sent;
}

// The rows that are sent of tokens [T/P, D], in temp.
Tensor DividedExperts::sorted(Ctx& c, const Sent& sent, Tensor tokens) const {
    const Tensor rows = c.temp.alloc(tokens.dtype, {sent.rows(), tokens.cols()});
    const Scope temps(c.temp);
    c.k.gather_rows(c.exec, rows, tokens_of(c, tokens), sent.sources, sent.top_k());
    return rows;
}

// The same of x, while the ranks exchange their counts, which determine the rounds.
Tensor DividedExperts::sorted_inputs(Ctx& c, const Sent& sent, Tensor x, FunctionRef<void()> beside) const {
    const Communicator& ranks = c.experts.expert_ranks();
    Underway counts(c, Exchange::count_rows, sent.counts, [&](Exec& exec) {
        ranks.all_gather(exec, sent.counts, sent.counts.slice_rows(ranks.rank(), 1));
    });
    const Tensor inputs = sorted(c, sent, x);
    beside();
    counts.join();
    c.experts.prepare(c.exec, sent.counts, rows_of(c, sent));
    return inputs;
}

// Brings the rows of a round and their weights; `alloc` decides where they are.
Arrived DividedExperts::bring(Ctx& c, const Sent& sent, int64_t round, Tensor inputs, Allocate alloc,
                              FunctionRef<void()> beside) const {
    const int64_t most = c.experts.capacity(rows_of(c, sent)).of_round(round), experts = products_.experts(),
                  grouped = grouped_rows(most, experts);
    Arrived a;
    a.groups = {.begins = alloc(Dtype::i32, {experts}),
                .counts = alloc(Dtype::i32, {experts}),
                .assignments = round == 0 ? sent.slots.count() : 0};
    a.slots = alloc(Dtype::i32, {most});
    a.sources = alloc(Dtype::i32, {grouped});
    a.rows = alloc(inputs.dtype, {grouped, inputs.cols()});
    a.weights = alloc(sent.weights.dtype, {grouped});
    a.gate_up = alloc(inputs.dtype, {grouped, products_.width()});
    const Scope temps(c.temp);
    const Rows arrived = {c.temp.alloc(inputs.dtype, {most, inputs.cols()}),
                          c.temp.alloc(sent.weights.dtype, {most, 1})};
    const ArrivingRows arriving = c.experts.select(round, rows_of(c, sent));
    auto underway = to_experts(c, {inputs, column(sent.weights)}, arrived);
    {
        const Scope choice(c.temp);
        const Tensor chosen = c.temp.alloc(Dtype::i32, {most});
        c.k.arrival_experts(c.exec, chosen, sent.counts, arriving);
        c.k.group_by_expert(c.exec, a.slots, a.sources, a.groups, chosen);
    }
    beside();
    underway.join_in(round);
    c.k.gather_rows(c.exec, a.rows, arrived.rows, a.sources, 1);
    c.k.gather_rows(c.exec, column(a.weights), arrived.numbers, a.sources, 1);
    products_.first(c, a.gate_up, a.rows, a.groups, c.experts.tensor_ranks());
    return a;
}

// Grouped rows of the selected round back to their places among the sorted ones.
void DividedExperts::return_rows(Ctx& c, int64_t round, const Arrived& a, const Rows& grouped,
                                 const Rows& sorted, FunctionRef<void()> beside) const {
    const Scope temps(c.temp);
    const auto by_rank_of = [&](Tensor rows) {
        if (!rows) return rows;
        const Tensor by_rank = c.temp.alloc(rows.dtype, {a.slots.count(), rows.cols()});
        c.k.gather_rows(c.exec, by_rank, rows, a.slots, 1);
        return by_rank;
    };
    const Rows by_rank = {by_rank_of(grouped.rows), by_rank_of(grouped.numbers)};
    auto underway = from_experts(c, by_rank, sorted);
    beside();
    underway.join_in(round);
}

Arrived DividedExperts::first_round(Ctx& c, const Sent& sent, Tensor inputs,
                                    FunctionRef<void()> beside) const {
    const Arrived a = bring(
        c, sent, 0, inputs, [&](Dtype type, const Shape& shape) { return c.frame.keep(type, shape); },
        beside);
    for (const Tensor& tensor : {sent.slots, sent.sources, sent.counts, sent.weights, sent.x, a.groups.begins,
                                 a.groups.counts, a.slots, a.sources, a.rows, a.weights, a.gate_up})
        c.frame.push(this, tensor);
    return a;
}

Arrived DividedExperts::later_round(Ctx& c, const Sent& sent, int64_t round, Tensor inputs) const {
    return bring(
        c, sent, round, inputs, [&](Dtype type, const Shape& shape) { return c.temp.alloc(type, shape); },
        nothing);
}

Tensor DividedExperts::forward(Ctx& c, Tensor x, const Routed& routed, FunctionRef<Tensor()> beside) const {
    const Scope temps(c.temp);
    const Sent sent = send(c, x, routed);
    const Tensor results = c.temp.alloc(x.dtype, {sent.rows(), x.cols()});
    Tensor y;
    {
        const Scope of_rounds(c.temp);
        const auto compute_y = [&] { y = beside(); };
        const Beside during(c, compute_y);
        const Tensor inputs = sorted_inputs(c, sent, x, during.counts);
        const auto finish = [&](int64_t round, const Arrived& a) {
            const Scope of_round(c.temp);
            return_rows(c, round, a,
                        {products_.second(c, a.gate_up, a.weights, a.groups, c.experts.tensor_ranks())},
                        {results}, nothing);
        };
        finish(0, first_round(c, sent, inputs, during.rows));
        const int64_t rounds = c.experts.rounds(rows_of(c, sent));
        if (c.loads) c.experts.add_extra_rounds(rounds - 1);
        for (int64_t round = 1; round < rounds; ++round) {
            const Scope of_round(c.temp);
            finish(round, later_round(c, sent, round, inputs));
        }
    }
    sum_of_experts(c, c.experts.tensor_ranks(), y, y, results, sent.slots);
    return y;
}

Tensor DividedExperts::backward(Ctx& c, Tensor dy, Tensor dx, FunctionRef<Tensor()> beside) const {
    Sent sent;
    Arrived a;
    for (Tensor* tensor :
         {&a.gate_up, &a.weights, &a.rows, &a.sources, &a.slots, &a.groups.counts, &a.groups.begins, &sent.x,
          &sent.weights, &sent.counts, &sent.sources, &sent.slots})
        *tensor = c.frame.pop(this);
    a.groups.assignments = sent.slots.count();
    const ExpertRows all = rows_of(c, sent);
    c.experts.prepare(c.exec, sent.counts, all);
    const Dtype type = dy.dtype, acc = a.weights.dtype;
    const Tensor dchosen = c.temp.alloc(acc, {dy.rows(), sent.top_k()});
    const Scope temps(c.temp);
    // of the sorted rows
    const Rows gradients = {c.temp.alloc(type, {sent.rows(), dy.cols()}),
                            c.temp.alloc(acc, {sent.rows(), 1})};
    Tensor base;
    {
        const Scope of_rounds(c.temp);
        const Tensor dresults = sorted(c, sent, dy);
        const auto backward_of = [&](int64_t round, const Arrived& of, ExpertProducts::WeightGradients when,
                                     FunctionRef<void()> during_return) {
            const Scope of_round(c.temp);
            const Tensor dweights = c.temp.alloc(acc, {of.weights.count()});
            const auto drows = [&] {
                const Tensor rows = c.temp.alloc(type, of.rows.shape);
                const Scope transfer(c.temp);
                const Rows arrived = {c.temp.alloc(type, {of.slots.count(), rows.cols()})};
                to_experts(c, {dresults}, arrived).join_in(round);
                c.k.gather_rows(c.exec, rows, arrived.rows, of.sources, 1);
                return rows;
            };
            const Tensor dinputs = products_.backward(c, of, dweights, drows, c.experts.tensor_ranks(), when);
            return_rows(c, round, of, {dinputs, column(dweights)}, gradients, during_return);
        };
        c.experts.select(0, all);
        backward_of(0, a, ExpertProducts::WeightGradients::later, [&] { base = beside(); });
        if (const int64_t count = c.experts.rounds(all); count > 1) {
            const Tensor inputs = sorted(c, sent, sent.x);
            for (int64_t round = 1; round < count; ++round) {
                const Scope of_round(c.temp);
                backward_of(round, later_round(c, sent, round, inputs), ExpertProducts::WeightGradients::now,
                            nothing);
            }
        }
    }
    sum_of_experts(c, c.experts.tensor_ranks(), dx, base, gradients.rows, sent.slots);
    numbers_of_tokens(c, c.experts.tensor_ranks(), dchosen, gradients.numbers, sent.slots);
    return dchosen;
}

}  // namespace

std::unique_ptr<Experts> divided_experts(const ExpertProducts& products) {
    return std::make_unique<DividedExperts>(products);
}

}  // namespace coeus
