// SPDX-License-Identifier: Apache-2.0
// Expert parallelism (Lepikhin et al. 2020, GShard): each of R ranks has E/R experts. A rank sorts its tokens
// by expert and sends them to the ranks of their experts, in rounds (expert_rounds.hpp). The results come
// back on the same way.
//
//   sender      x [n, D] -> sorted by expert [n k, D] -> all-to-all
//   receiver    arrived [c, D], by rank -> grouped by expert -> products -> by rank again -> all-to-all
//   sender      results [n k, D] -> y
//
// Only the rows of the first round are kept. The backward brings those of later rounds again, and computes
// their first product again.
//
// If P ranks divide each expert, they all send and receive the same rows, and their results are parts of
// sums.
#include "coeus/layers/expert_rounds.hpp"
#include "coeus/layers/experts.hpp"
#include "coeus/layers/sequence_parallel.hpp"

namespace coeus {

namespace {

// What a rank sends, all kept: slots i32[n, k], the place of each assignment among the sorted rows; sources
// i32[n k], its inverse; counts i32[R, E]; weights acc [n k], sorted; and the input x [T/P, D], if there are
// later rounds.
struct Sent {
    Tensor slots, sources, counts, weights, x;
    int64_t top_k() const { return slots.cols(); }
    int64_t rows() const { return slots.count(); }
};

// The rows of a round: slots i32[c], the place of each arriving row among the grouped ones; sources, its
// inverse, -1 in padding.
struct Arrived : ExpertProducts::Kept {
    Tensor slots, sources;
};

class DividedExperts : public Experts {
public:
    explicit DividedExperts(const ExpertProducts& products) : products_(products) {}

    void forward(Ctx& c, Tensor x, const Routed& routed, Tensor y) const override;
    void rebuild(Ctx& c, Tensor x, const Routed& routed) const override {
        const Scope temps(c.temp);
        const Sent sent = send(c, x, routed);
        begin_rounds(c, sent);
        first_round(c, sent, sorted(c, sent, x));
    }
    Gradients backward(Ctx& c, Tensor dy) const override;

private:
    using Allocate = FunctionRef<Tensor(Dtype, const Shape&)>;

    Sent send(Ctx& c, Tensor x, const Routed& routed) const;
    Tensor sorted(Ctx& c, const Sent& sent, Tensor tokens) const;
    Arrived first_round(Ctx& c, const Sent& sent, Tensor inputs) const;
    Arrived later_round(Ctx& c, const Sent& sent, int64_t round, Tensor inputs) const;
    Arrived bring(Ctx& c, const Sent& sent, int64_t round, Tensor inputs, Allocate alloc) const;
    Tensor bring_rows(Ctx& c, const Arrived& arrived, Tensor sorted) const;
    void return_rows(Ctx& c, const Arrived& arrived, Tensor rows, Tensor sorted) const;
    ExpertCapacity capacity(Ctx& c, const Sent& sent) const;
    int64_t begin_rounds(Ctx& c, const Sent& sent) const;
    bool adds_bias(Ctx& c) const { return c.experts.each.rank() == 0; }
    ExpertProducts products_;
};

// The tokens that this rank sends: its own, or those of all ranks that divide each expert.
Tensor tokens_of(Ctx& c, Tensor own) {
    return c.experts.each.size() == 1 ? own : gather_tokens(c, own);
}
// Memory for parts of y, a sum over the ranks that divide each expert.
Tensor parts_for(Ctx& c, Tensor y) {
    return c.experts.each.size() == 1 ? y : parts_of(c, y);
}
void sum_parts(Ctx& c, Tensor y, Tensor parts) {
    if (c.experts.each.size() > 1) scatter_tokens(c, y, parts);
}

ExpertCapacity DividedExperts::capacity(Ctx& c, const Sent& sent) const {
    return ExpertCapacity::of(c.experts.ranks.size(), sent.slots.rows(), sent.top_k(), products_.experts(),
                              c.experts.capacity_factor);
}

// Reads the counts and returns the number of rounds. A planning run has no counts; it takes two rounds, if
// there may be more than one.
int64_t DividedExperts::begin_rounds(Ctx& c, const Sent& sent) const {
    const ExpertCapacity most = capacity(c, sent);
    if (c.experts.ranks.is_planned()) return most.later > 0 ? 2 : 1;
    c.experts.set_rounds(c.exec, sent.counts, most);
    return c.experts.rounds.count();
}

Sent DividedExperts::send(Ctx& c, Tensor x, const Routed& routed) const {
    const Communicator& ranks = c.experts.ranks;
    const int64_t tokens = x.rows() * c.experts.each.size(), k = routed.experts.cols(),
                  experts = products_.experts() * ranks.size();
    Sent sent;
    sent.slots = c.frame.keep(Dtype::i32, {tokens, k});
    sent.sources = c.frame.keep(Dtype::i32, {tokens * k});
    sent.counts = c.frame.keep(Dtype::i32, {ranks.size(), experts});
    sent.weights = c.frame.keep(routed.weights.dtype, {tokens * k});
    if (capacity(c, sent).later > 0) {
        sent.x = c.frame.keep(x.dtype, x.shape);
        c.k.cast(c.exec, sent.x, x);
    }
    const Scope temps(c.temp);
    const Tensor own = sent.counts.slice_rows(ranks.rank(), 1).reshape({experts});
    c.k.group_by_expert(c.exec, sent.slots, sent.sources,
                        {.begins = c.temp.alloc(Dtype::i32, {experts}),
                         .counts = own,
                         .assignments = tokens * k,
                         .multiple = 1},
                        tokens_of(c, routed.experts));
    c.k.gather_rows(c.exec, column(sent.weights), column(tokens_of(c, routed.weights)), sent.sources, 1);
    const ObservedExchange noted(c.exec, Exchange::count_rows, sent.counts);
    ranks.all_gather(c.exec, sent.counts, own);
    return sent;
}

// The rows of tokens [T/P, D] in the order of experts, [n k, D], in temp.
Tensor DividedExperts::sorted(Ctx& c, const Sent& sent, Tensor tokens) const {
    const Tensor rows = c.temp.alloc(tokens.dtype, {sent.rows(), tokens.cols()});
    const Scope temps(c.temp);
    c.k.gather_rows(c.exec, rows, tokens_of(c, tokens), sent.sources, sent.top_k());
    return rows;
}

// Brings the rows of a round and their weights; `alloc` decides where they are.
Arrived DividedExperts::bring(Ctx& c, const Sent& sent, int64_t round, Tensor inputs, Allocate alloc) const {
    const int64_t most = capacity(c, sent).of_round(round), experts = products_.experts(),
                  grouped = grouped_rows(most, experts);
    Arrived a;
    a.groups = {.begins = alloc(Dtype::i32, {experts}),
                .counts = alloc(Dtype::i32, {experts}),
                .assignments = round == 0 ? sent.rows() : 0};
    a.slots = alloc(Dtype::i32, {most});
    a.sources = alloc(Dtype::i32, {grouped});
    a.rows = alloc(inputs.dtype, {grouped, inputs.cols()});
    a.weights = alloc(sent.weights.dtype, {grouped});
    a.gate_up = alloc(inputs.dtype, {grouped, products_.width()});
    const Scope temps(c.temp);
    c.experts.rounds.select(round);
    const Tensor chosen = c.temp.alloc(Dtype::i32, {most});
    c.k.arrival_experts(c.exec, chosen, sent.counts, c.experts.rounds.arriving());
    c.k.group_by_expert(c.exec, a.slots, a.sources, a.groups, chosen);
    const auto place = [&](Tensor to, Tensor from) {
        const Scope arrived(c.temp);
        c.k.gather_rows(c.exec, to, bring_rows(c, a, from), a.sources, 1);
    };
    place(a.rows, inputs);
    place(column(a.weights), column(sent.weights));
    products_.first(c, a.gate_up, a.rows, a.groups);
    return a;
}

// The rows that arrive, [c, cols], in temp, in the order of the ranks.
Tensor DividedExperts::bring_rows(Ctx& c, const Arrived& a, Tensor sorted) const {
    const Tensor arrived = c.temp.alloc(sorted.dtype, {a.slots.count(), sorted.cols()});
    const ObservedExchange noted(c.exec, Exchange::rows_to_experts, arrived);
    c.experts.ranks.all_to_all(c.exec, arrived, c.experts.rounds.received(), sorted, c.experts.rounds.sent());
    return arrived;
}

// The other way: grouped rows of the selected round back to their places among the sorted ones.
void DividedExperts::return_rows(Ctx& c, const Arrived& a, Tensor rows, Tensor sorted) const {
    const Scope temps(c.temp);
    const Tensor by_rank = c.temp.alloc(rows.dtype, {a.slots.count(), rows.cols()});
    c.k.gather_rows(c.exec, by_rank, rows, a.slots, 1);
    const ObservedExchange noted(c.exec, Exchange::rows_from_experts, by_rank);
    c.experts.ranks.all_to_all(c.exec, sorted, c.experts.rounds.sent(), by_rank, c.experts.rounds.received());
}

Arrived DividedExperts::first_round(Ctx& c, const Sent& sent, Tensor inputs) const {
    const Arrived a =
        bring(c, sent, 0, inputs, [&](Dtype type, const Shape& shape) { return c.frame.keep(type, shape); });
    for (const Tensor& tensor : {sent.slots, sent.sources, sent.counts, sent.weights, sent.x, a.groups.begins,
                                 a.groups.counts, a.slots, a.sources, a.rows, a.weights, a.gate_up})
        c.frame.push(this, tensor);
    return a;
}

Arrived DividedExperts::later_round(Ctx& c, const Sent& sent, int64_t round, Tensor inputs) const {
    return bring(c, sent, round, inputs,
                 [&](Dtype type, const Shape& shape) { return c.temp.alloc(type, shape); });
}

void DividedExperts::forward(Ctx& c, Tensor x, const Routed& routed, Tensor y) const {
    const Scope temps(c.temp);
    const Sent sent = send(c, x, routed);
    const Tensor results = c.temp.alloc(x.dtype, {sent.rows(), x.cols()});
    {
        const Scope of_rounds(c.temp);
        const Tensor inputs = sorted(c, sent, x);
        const auto finish = [&](const Arrived& a) {
            const Scope of_round(c.temp);
            return_rows(c, a, products_.second(c, a.gate_up, a.weights, a.groups, adds_bias(c)), results);
        };
        const int64_t rounds = begin_rounds(c, sent);
        finish(first_round(c, sent, inputs));
        for (int64_t round = 1; round < rounds; ++round) {
            const Scope of_round(c.temp);
            finish(later_round(c, sent, round, inputs));
        }
    }
    if (c.experts.each.size() == 1) return c.k.sum_rows(c.exec, y, y, results, sent.slots);
    const Tensor parts = c.temp.alloc(x.dtype, {sent.slots.rows(), x.cols()}),
                 own = c.temp.alloc(x.dtype, y.shape);
    c.k.sum_rows(c.exec, parts, {}, results, sent.slots);
    scatter_tokens(c, own, parts);
    c.k.add(c.exec, y, own);
}

Experts::Gradients DividedExperts::backward(Ctx& c, Tensor dy) const {
    Sent sent;
    Arrived a;
    for (Tensor* tensor :
         {&a.gate_up, &a.weights, &a.rows, &a.sources, &a.slots, &a.groups.counts, &a.groups.begins, &sent.x,
          &sent.weights, &sent.counts, &sent.sources, &sent.slots})
        *tensor = c.frame.pop(this);
    a.groups.assignments = sent.rows();
    const Dtype type = dy.dtype, acc = a.weights.dtype;
    const Gradients gradients = {c.temp.alloc(type, dy.shape), c.temp.alloc(acc, {dy.rows(), sent.top_k()})};
    const Scope temps(c.temp);
    // of the sorted rows
    const Tensor dinputs = c.temp.alloc(type, {sent.rows(), dy.cols()}),
                 dweights = c.temp.alloc(acc, {sent.rows()});
    {
        const Scope of_rounds(c.temp);
        const Tensor dresults = sorted(c, sent, dy);
        const auto backward_of = [&](const Arrived& round, ExpertProducts::WeightGradients when) {
            const Scope of_round(c.temp);
            const Tensor dweights_here = c.temp.alloc(acc, {round.weights.count()});
            const auto drows = [&] {
                const Tensor rows = c.temp.alloc(type, round.rows.shape);
                const Scope arrived(c.temp);
                c.k.gather_rows(c.exec, rows, bring_rows(c, round, dresults), round.sources, 1);
                return rows;
            };
            const Tensor dx = products_.backward(c, round, dweights_here, drows, adds_bias(c), when);
            return_rows(c, round, dx, dinputs);
            return_rows(c, round, column(dweights_here), column(dweights));
        };
        const int64_t rounds = begin_rounds(c, sent);
        c.experts.rounds.select(0);
        backward_of(a, ExpertProducts::WeightGradients::later);
        if (rounds > 1) {
            const Tensor inputs = sorted(c, sent, sent.x);
            for (int64_t round = 1; round < rounds; ++round) {
                const Scope of_round(c.temp);
                backward_of(later_round(c, sent, round, inputs), ExpertProducts::WeightGradients::now);
            }
        }
    }
    const Tensor dx = parts_for(c, gradients.dx), dchosen = parts_for(c, gradients.dweights);
    c.k.sum_rows(c.exec, dx, {}, dinputs, sent.slots);
    sum_parts(c, gradients.dx, dx);
    c.k.gather_rows(c.exec, column(dchosen), column(dweights), sent.slots.reshape({sent.rows()}), 1);
    sum_parts(c, gradients.dweights, dchosen);
    return gradients;
}

}  // namespace

std::unique_ptr<Experts> divided_experts(const ExpertProducts& products) {
    return std::make_unique<DividedExperts>(products);
}

}  // namespace coeus
