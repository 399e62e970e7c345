// SPDX-License-Identifier: Apache-2.0
// Expert parallelism (Lepikhin et al. 2020, GShard): each of R ranks has E/R experts. A rank sends the row of
// a token once to each rank that has some of its experts, as Ctx::experts does it (expert_exchange.hpp). That
// rank adds its experts' results, and the sum comes back on the same way.
//
//   sender      x [n, D] -> sorted by rank [s, D] -> all-to-all; likewise its experts there and their weights
//   receiver    arrived [c, D] -> rows of assignments, grouped by expert -> products -> sums [c, D]
//               -> all-to-all
//   sender      sums [s, D] -> y
//
// For the receiver, the rows that arrive are the tokens of local_experts. In the backward, the gradients of
// rows and weights take the same ways.
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

// What a rank sends: slots i32[n, k], the place of a row among those that are sent, for the first expert of a
// token on a rank, otherwise -1; sources i32[s], its inverse; places i32[n, k] of the assignments among the
// choices of the rows; and counts i32[R, .], if there are any. These are kept. For each row, choices i32[s,
// m] and weights acc [s, m] of its experts on the receiver; they and the input x [T/P, D] are kept if there
// are later rounds.
struct Sent {
    Tensor slots, sources, places, counts, choices, weights, x;
    int64_t top_k() const { return slots.cols(); }
    int64_t rows() const { return sources.count(); }
};

// The rows of a round: slots i32[c, m], the place of each choice of an arriving row among the grouped rows,
// -1 if there is none; sources, its inverse, -1 in padding. `count` rows have arrived.
struct Arrived : ExpertProducts::Kept {
    Tensor slots, sources;
    int64_t count = 0;

    int64_t choices() const { return slots.cols(); }
    Tensor slots_of_rows() const { return slots.slice_rows(0, count); }
};

// What travels back for each row: its sum, and the numbers of its m choices if they are present.
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

// What is computed beside the exchange of choices, and beside that of the first rows.
struct Beside {
    FunctionRef<void()> choices, rows;
};

// `work` beside the rows, which take longer, unless another computation continues while they are waited for.
Beside during(Ctx& c, FunctionRef<void()> work) {
    if (c.experts.has_meanwhile()) return {work, nothing};
    return {nothing, work};
}

class DividedExperts : public Experts {
public:
    explicit DividedExperts(const ExpertProducts& products) : products_(products) {}

    Tensor forward(Ctx& c, Tensor x, const Routed& routed, FunctionRef<Tensor()> beside) const override;
    void rebuild(Ctx& c, Tensor x, const Routed& routed, FunctionRef<void()> beside) const override {
        const Scope temps(c.temp);
        const Sent sent = send(c, x, routed);
        first_round(c, sent, room_for_rows(c, sent, x), x, during(c, beside));
    }
    Tensor backward(Ctx& c, Tensor dy, Tensor dx, FunctionRef<Tensor()> beside) const override;

private:
    using Allocate = FunctionRef<Tensor(Dtype, const Shape&)>;

    Sent send(Ctx& c, Tensor x, const Routed& routed) const;
    Tensor room_for_rows(Ctx& c, const Sent& sent, Tensor tokens) const;
    void sort(Ctx& c, const Sent& sent, Tensor rows, Tensor tokens) const;
    Arrived first_round(Ctx& c, const Sent& sent, Tensor inputs, Tensor x, const Beside& beside) const;
    Arrived later_round(Ctx& c, const Sent& sent, int64_t round, Tensor inputs) const;
    Arrived bring(Ctx& c, const Sent& sent, int64_t round, Tensor inputs, Allocate alloc,
                  const Beside& beside) const;
    void return_sums(Ctx& c, int64_t round, const Arrived& arrived, const Rows& grouped, const Rows& sums,
                     FunctionRef<void()> beside) const;
    ExpertRows rows_of(Ctx& c, const Sent& sent) const {
        return c.experts.rows_of(sent.slots.rows(), sent.top_k(), products_.experts());
    }
    ExpertProducts products_;

    // The choices of the selected round and their weights to the experts' ranks, where they arrive in the
    // order of the ranks ...
    auto choices_to_experts(Ctx& c, const Sent& sent, Tensor choices, Tensor weights) const {
        return Underway(c, Exchange::rows_to_experts, choices, [&c, &sent, choices, weights](Exec& exec) {
            c.experts.expert_ranks().grouped(exec, [&] {
                c.experts.send(exec, choices, sent.choices);
                c.experts.send(exec, weights, sent.weights);
            });
        });
    }
    // ... and their rows.
    auto rows_to_experts(Ctx& c, Tensor sorted, Tensor arrived) const {
        return Underway(c, Exchange::rows_to_experts, arrived,
                        [&c, sorted, arrived](Exec& exec) { c.experts.send(exec, arrived, sorted); });
    }
    // The other way: back to their places among the rows that were sent.
    auto from_experts(Ctx& c, Rows by_rank, Rows sums) const {
        return Underway(c, Exchange::rows_from_experts, by_rank.rows, [&c, by_rank, sums](Exec& exec) {
            c.experts.expert_ranks().grouped(exec, [&] {
                c.experts.send_back(exec, sums.rows, by_rank.rows);
                if (by_rank.numbers) c.experts.send_back(exec, sums.numbers, by_rank.numbers);
            });
        });
    }
};

// The tokens that this rank sends: its own, or those of all ranks that divide each expert.
Tensor tokens_of(Ctx& c, Tensor own) {
    return c.experts.tensor_ranks().size() == 1 ? own : gather_tokens(c, own);
}

// Also tells the other ranks how many rows they get, which determines the rounds. What is not kept is in
// temp.
Sent DividedExperts::send(Ctx& c, Tensor x, const Routed& routed) const {
    const int64_t tokens = x.rows() * c.experts.tensor_ranks().size(), k = routed.experts.cols();
    const ExpertRows all = c.experts.rows_of(tokens, k, products_.experts());
    const RankRows here = {products_.experts(), 1};
    const Communicator& ranks = c.experts.expert_ranks();
    Sent sent;
    sent.slots = c.frame.keep(Dtype::i32, {tokens, k});
    sent.sources = c.frame.keep(Dtype::i32, {c.experts.sent(all)});
    sent.places = c.frame.keep(Dtype::i32, {tokens, k});
    if (const int64_t counts = c.experts.counts(all); counts > 0)
        sent.counts = c.frame.keep(Dtype::i32, {ranks.size(), counts});
    const bool has_later = c.experts.capacity(all).later > 0;
    const auto alloc = [&](Dtype type, const Shape& shape) {
        return has_later ? c.frame.keep(type, shape) : c.temp.alloc(type, shape);
    };
    sent.choices = alloc(Dtype::i32, {sent.rows(), all.choices()});
    sent.weights = alloc(routed.weights.dtype, sent.choices.shape);
    if (has_later) {
        sent.x = c.frame.keep(x.dtype, x.shape);
        c.k.cast(c.exec, sent.x, x);
    }
    const Scope temps(c.temp);
    const Tensor experts = tokens_of(c, routed.experts), weights = tokens_of(c, routed.weights);
    const Tensor own = sent.counts ? sent.counts.slice_rows(ranks.rank(), 1) : Tensor{};
    c.experts.place(c, sent.slots, sent.sources, own, experts, all);
    const auto choose = [&] {
        c.k.choices_of_rows(c.exec, sent.choices, sent.weights, sent.places, sent.slots, sent.sources,
                            experts, weights, here);
    };
    if (sent.counts) {
        Underway counts(c, Exchange::count_rows, sent.counts,
                        [&](Exec& exec) { ranks.all_gather(exec, sent.counts, own); });
        choose();
        counts.join();
    } else {
        choose();
    }
    c.experts.prepare(c.exec, sent.counts, all);
    return sent;
}

// The rows that are sent of tokens [T/P, D], in temp; sort() writes them.
Tensor DividedExperts::room_for_rows(Ctx& c, const Sent& sent, Tensor tokens) const {
    return c.temp.alloc(tokens.dtype, {sent.rows(), tokens.cols()});
}

void DividedExperts::sort(Ctx& c, const Sent& sent, Tensor rows, Tensor tokens) const {
    const Scope temps(c.temp);
    c.k.gather_rows(c.exec, rows, tokens_of(c, tokens), sent.sources, sent.top_k());
}

// Brings the rows of a round and their weights; `alloc` decides where they are.
Arrived DividedExperts::bring(Ctx& c, const Sent& sent, int64_t round, Tensor inputs, Allocate alloc,
                              const Beside& beside) const {
    const ExpertRows all = rows_of(c, sent);
    const int64_t most = c.experts.arriving(round, all), experts = products_.experts(),
                  grouped = grouped_rows(c.experts.capacity(all).of_round(round), experts);
    Arrived a;
    a.groups = {.begins = alloc(Dtype::i32, {experts}),
                .counts = alloc(Dtype::i32, {experts}),
                .assignments = round == 0 ? sent.slots.count() : 0};
    a.slots = alloc(Dtype::i32, {most, all.choices()});
    a.sources = alloc(Dtype::i32, {grouped});
    a.rows = alloc(inputs.dtype, {grouped, inputs.cols()});
    a.weights = alloc(sent.weights.dtype, {grouped});
    a.gate_up = alloc(inputs.dtype, {grouped, products_.width()});
    a.count = c.experts.select(round, all);
    const Scope temps(c.temp);
    const Tensor rows = c.temp.alloc(inputs.dtype, {most, inputs.cols()}).slice_rows(0, a.count),
                 choices = c.temp.alloc(Dtype::i32, a.slots.shape).slice_rows(0, a.count),
                 weights = c.temp.alloc(sent.weights.dtype, a.slots.shape).slice_rows(0, a.count);
    auto choices_underway = choices_to_experts(c, sent, choices, weights);
    beside.choices();
    auto rows_underway = rows_to_experts(c, inputs, rows);
    choices_underway.join();
    c.k.group_by_expert(c.exec, a.slots_of_rows(), a.sources, a.groups, choices, &c.scalars.overflow);
    c.k.gather_rows(c.exec, column(a.weights), column(weights), a.sources, 1);
    beside.rows();
    rows_underway.join_in(round);
    c.k.gather_rows(c.exec, a.rows, rows, a.sources, a.choices());
    products_.first(c, a.gate_up, a.rows, a.groups, c.experts.tensor_ranks());
    return a;
}

// Adds grouped rows of the selected round for each row that has arrived, and sends the sums back.
void DividedExperts::return_sums(Ctx& c, int64_t round, const Arrived& a, const Rows& grouped,
                                 const Rows& sums, FunctionRef<void()> beside) const {
    const Scope temps(c.temp);
    Rows by_rank = {
        c.temp.alloc(grouped.rows.dtype, {a.slots.rows(), grouped.rows.cols()}).slice_rows(0, a.count)};
    c.k.sum_rows(c.exec, by_rank.rows, {}, grouped.rows, a.slots_of_rows());
    if (grouped.numbers) {
        by_rank.numbers = c.temp.alloc(grouped.numbers.dtype, a.slots.shape).slice_rows(0, a.count);
        c.k.gather_rows(c.exec, column(by_rank.numbers), column(grouped.numbers), column(a.slots_of_rows()),
                        1);
    }
    auto underway = from_experts(c, by_rank, sums);
    beside();
    underway.join_in(round);
}

// `inputs` is the room for the rows of x that are sent, which are sorted while their choices travel.
Arrived DividedExperts::first_round(Ctx& c, const Sent& sent, Tensor inputs, Tensor x,
                                    const Beside& beside) const {
    const auto beside_choices = [&] {
        sort(c, sent, inputs, x);
        beside.choices();
    };
    const auto keep = [&](Dtype type, const Shape& shape) { return c.frame.keep(type, shape); };
    const Arrived a = bring(c, sent, 0, inputs, keep, {beside_choices, beside.rows});
    const bool has_later = bool(sent.x);
    for (const Tensor& tensor :
         {sent.slots, sent.sources, sent.places, sent.counts, has_later ? sent.choices : Tensor{},
          has_later ? sent.weights : Tensor{}, sent.x, a.groups.begins, a.groups.counts, a.slots, a.sources,
          a.rows, a.weights, a.gate_up})
        c.frame.push(this, tensor);
    return a;
}

Arrived DividedExperts::later_round(Ctx& c, const Sent& sent, int64_t round, Tensor inputs) const {
    const auto alloc = [&](Dtype type, const Shape& shape) { return c.temp.alloc(type, shape); };
    return bring(c, sent, round, inputs, alloc, {nothing, nothing});
}

Tensor DividedExperts::forward(Ctx& c, Tensor x, const Routed& routed, FunctionRef<Tensor()> beside) const {
    const Scope temps(c.temp);
    const Sent sent = send(c, x, routed);
    const Tensor results = c.temp.alloc(x.dtype, {sent.rows(), x.cols()});
    Tensor y;
    {
        const Scope of_rounds(c.temp);
        const auto compute_y = [&] { y = beside(); };
        const Tensor inputs = room_for_rows(c, sent, x);
        const auto finish = [&](int64_t round, const Arrived& a) {
            const Scope of_round(c.temp);
            return_sums(c, round, a,
                        {products_.second(c, a.gate_up, a.weights, a.groups, c.experts.tensor_ranks())},
                        {results}, nothing);
        };
        finish(0, first_round(c, sent, inputs, x, during(c, compute_y)));
        const int64_t rounds = c.experts.rounds(rows_of(c, sent));
        if (c.counts) c.experts.add_extra_rounds(rounds - 1);
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
          &sent.weights, &sent.choices, &sent.counts, &sent.places, &sent.sources, &sent.slots})
        *tensor = c.frame.pop(this);
    a.groups.assignments = sent.slots.count();
    const ExpertRows all = rows_of(c, sent);
    c.experts.prepare(c.exec, sent.counts, all);
    const Dtype type = dy.dtype, acc = a.weights.dtype;
    const Tensor dchosen = c.temp.alloc(acc, {dy.rows(), sent.top_k()});
    const Scope temps(c.temp);
    // of the rows that were sent, and of their choices' weights
    const Rows gradients = {c.temp.alloc(type, {sent.rows(), dy.cols()}),
                            c.temp.alloc(acc, {sent.rows(), all.choices()})};
    Tensor base;
    {
        const Scope of_rounds(c.temp);
        const Tensor dresults = room_for_rows(c, sent, dy);
        sort(c, sent, dresults, dy);
        const auto backward_of = [&](int64_t round, const Arrived& of, ExpertProducts::WeightGradients when,
                                     FunctionRef<void()> during_return) {
            const Scope of_round(c.temp);
            const Tensor dweights = c.temp.alloc(acc, {of.weights.count()});
            const auto drows = [&] {
                const Tensor rows = c.temp.alloc(type, of.rows.shape);
                const Scope transfer(c.temp);
                const Tensor arrived =
                    c.temp.alloc(type, {of.slots.rows(), rows.cols()}).slice_rows(0, of.count);
                rows_to_experts(c, dresults, arrived).join_in(round);
                c.k.gather_rows(c.exec, rows, arrived, of.sources, of.choices());
                return rows;
            };
            const Tensor dinputs = products_.backward(c, of, dweights, drows, c.experts.tensor_ranks(), when);
            return_sums(c, round, of, {dinputs, dweights}, gradients, during_return);
        };
        a.count = c.experts.select(0, all);
        backward_of(0, a, ExpertProducts::WeightGradients::later, [&] { base = beside(); });
        if (const int64_t count = c.experts.rounds(all); count > 1) {
            const Tensor inputs = room_for_rows(c, sent, sent.x);
            sort(c, sent, inputs, sent.x);
            for (int64_t round = 1; round < count; ++round) {
                const Scope of_round(c.temp);
                backward_of(round, later_round(c, sent, round, inputs), ExpertProducts::WeightGradients::now,
                            nothing);
            }
        }
    }
    sum_of_experts(c, c.experts.tensor_ranks(), dx, base, gradients.rows, sent.slots);
    numbers_of_tokens(c, c.experts.tensor_ranks(), dchosen, gradients.numbers, sent.places);
    return dchosen;
}

}  // namespace

std::unique_ptr<Experts> divided_experts(const ExpertProducts& products) {
    return std::make_unique<DividedExperts>(products);
}

}  // namespace coeus
