// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/experts.hpp"

#include "coeus/layers/exchanges/sequence_parallel.hpp"
#include "coeus/layers/operands.hpp"

namespace coeus {

namespace {

// The rows of this rank's experts in a tensor of all experts; an absent tensor stays absent.
Tensor rows_of(const ExpertWeights& weights, Tensor of_all) {
    return of_all ? of_all.slice_rows(weights.first, weights.count) : of_all;
}

// The results of these ranks are added, so one of them adds the bias.
bool adds_bias(const Communicator& ranks) {
    return ranks.rank() == 0;
}

// How the ranks that divide each expert divide a matrix or rows: columns of one, and rows of the other.
Division columns_over(const Communicator& ranks) {
    return {.row_ranks = alone(), .other_row_ranks = alone(), .column_ranks = ranks};
}
Division rows_over(const Communicator& ranks) {
    return {.row_ranks = alone(), .other_row_ranks = ranks, .column_ranks = alone()};
}

// The matrices of all experts [G, O, I] in a form, in temp.
Tensor matrices(Ctx& c, const ExpertWeights& weights, const Storage& storage, const Form& form,
                const Division& by) {
    const Tensor w = storage.w;
    if (!form.is_8_bit()) return w;
    return in_form(c, w.reshape({weights.count, w.rows() / weights.count, w.cols()}), form, by);
}

void multiply_groups(Ctx& c, Tensor d, Tensor a, Operand b, const Groups& groups, bool fast) {
    if (a.groups == ScaleGroups::none)
        c.k.grouped_gemm(c.exec, d, a, b, groups);
    else
        c.k.scaled_grouped_gemm(c.exec, d, a, b, groups, fast);
}

}  // namespace

void ExpertProducts::first(Ctx& c, Tensor gate_up, Tensor rows, const Groups& groups,
                           const Communicator& ranks) const {
    const RecipeForms forms = forms_of(weights_.w13->recipe());
    const Scope operands(c.temp);
    const Tensor x = in_form(c, rows, forms.x, Division::whole(), groups),
                 w = matrices(c, weights_, *weights_.w13, forms.w, rows_over(ranks));
    multiply_groups(c, gate_up, x, transposed(w), groups, true);
    if (weights_.b13) c.k.add_group_bias(c.exec, gate_up, rows_of(weights_, weights_.b13->w), {}, groups);
}

Tensor ExpertProducts::second(Ctx& c, Tensor gate_up, Tensor weights, const Groups& groups,
                              const Communicator& ranks) const {
    const RecipeForms forms = forms_of(weights_.w2->recipe());
    const Tensor out = c.temp.alloc(gate_up.dtype, {gate_up.rows(), weights_.w2->w.rows() / weights_.count});
    const Scope activation(c.temp);
    const Tensor act = c.temp.alloc(gate_up.dtype, {gate_up.rows(), gate_up.cols() / 2});
    c.k.gate(c.exec, act, gate_up, weights, groups, gate_);
    const Tensor x = in_form(c, act, forms.x, columns_over(ranks), groups),
                 w = matrices(c, weights_, *weights_.w2, forms.w, columns_over(ranks));
    multiply_groups(c, out, x, transposed(w), groups, true);
    if (weights_.b2 && adds_bias(ranks))
        c.k.add_group_bias(c.exec, out, rows_of(weights_, weights_.b2->w), weights, groups);
    return out;
}

// Requests the weight gradient of x and dy, in the forms of the recipe.
void ExpertProducts::add(Ctx& c, const Storage& storage, Tensor x, const Division& of_x, Tensor dy,
                         const Division& of_dy, const Groups& groups, bool x_is_lent, bool dy_is_lent,
                         WeightGradients when) const {
    if (!storage.trainable()) return;
    const RecipeForms forms = forms_of(storage.recipe());
    const bool is_8_bit = forms.x_of_wgrad.is_8_bit();
    const Scope operands(c.temp);
    const WeightGradient gradient = {.parts = {&storage, in_form(c, dy, forms.dy_of_wgrad, of_dy, groups)},
                                     .x = in_form(c, x, forms.x_of_wgrad, of_x, groups),
                                     .groups = groups,
                                     .x_is_lent = x_is_lent || is_8_bit,
                                     .dy_is_lent = dy_is_lent || is_8_bit};
    if (when == WeightGradients::later)
        c.frame.later(c, gradient);
    else
        add_gradient(c, gradient);
}

Tensor ExpertProducts::backward(Ctx& c, const Kept& kept, Tensor dweights, FunctionRef<Tensor()> drows,
                                const Communicator& ranks, WeightGradients when) const {
    const Groups& groups = kept.groups;
    const Dtype type = kept.rows.dtype;
    const Division whole = Division::whole(), columns = columns_over(ranks);
    {
        const RecipeForms forms = forms_of(weights_.w2->recipe());
        const Scope second(c.temp);
        const Tensor dresults = drows();
        const Tensor act = c.temp.alloc(type, {kept.rows.rows(), kept.gate_up.cols() / 2}),
                     dact = c.temp.alloc(type, act.shape);
        {
            const Scope operands(c.temp);
            const Tensor dy = in_form(c, dresults, forms.dy, whole, groups),
                         w = matrices(c, weights_, *weights_.w2, forms.w_of_dgrad, columns);
            multiply_groups(c, dact, dy, w, groups, false);
        }
        c.k.gate_backward(c.exec, kept.gate_up, dweights, act, dact, kept.gate_up, kept.weights, groups,
                          gate_);
        add(c, *weights_.w2, act, columns, dresults, whole, groups, true, true, when);
        if (weights_.b2 && adds_bias(ranks)) {
            const Tensor more = c.temp.alloc(dweights.dtype, dweights.shape);
            const Tensor gradient = weights_.b2->trainable() ? rows_of(weights_, weights_.b2->g) : Tensor{};
            c.k.add_group_bias_backward(c.exec, gradient, more, dresults, rows_of(weights_, weights_.b2->w),
                                        kept.weights, groups);
            c.k.add(c.exec, dweights, more);
        }
    }
    const RecipeForms forms = forms_of(weights_.w13->recipe());
    const Tensor dx = c.temp.alloc(type, kept.rows.shape);
    {
        const Scope operands(c.temp);
        const Tensor dy = in_form(c, kept.gate_up, forms.dy, columns, groups),
                     w = matrices(c, weights_, *weights_.w13, forms.w_of_dgrad, rows_over(ranks));
        multiply_groups(c, dx, dy, w, groups, false);
    }
    add(c, *weights_.w13, kept.rows, whole, kept.gate_up, columns, groups, false, false, when);
    if (weights_.b13 && weights_.b13->trainable())
        c.k.add_group_bias_backward(c.exec, rows_of(weights_, weights_.b13->g), {}, kept.gate_up,
                                    rows_of(weights_, weights_.b13->w), {}, groups);
    return dx;
}

void sum_of_experts(Ctx& c, const Communicator& ranks, Tensor out, Tensor base, Tensor rows, Tensor slots) {
    if (ranks.size() == 1) return c.k.sum_rows(c.exec, out, base, rows, slots);
    const Scope temps(c.temp);
    const Tensor parts = parts_of(c, out), own = base ? c.temp.alloc(out.dtype, out.shape) : out;
    c.k.sum_rows(c.exec, parts, {}, rows, slots);
    scatter_tokens(c, own, parts);
    if (base) c.k.add(c.exec, out, own);
}

void numbers_of_tokens(Ctx& c, const Communicator& ranks, Tensor out, Tensor numbers, Tensor slots) {
    const Scope temps(c.temp);
    const Tensor parts = ranks.size() == 1 ? out : parts_of(c, out);
    c.k.gather_rows(c.exec, column(parts), column(numbers), slots.reshape({slots.count()}), 1);
    if (ranks.size() > 1) scatter_tokens(c, out, parts);
}

namespace {

class LocalExperts : public Experts {
public:
    explicit LocalExperts(const ExpertProducts& products) : products_(products) {}

    Tensor forward(Ctx& c, Tensor x, const Routed& routed, FunctionRef<Tensor()> beside) const override {
        const Tensor y = beside();
        const Rows r = first_product(c, x, routed);
        const Scope temps(c.temp);
        const Tensor out = products_.second(c, r.gate_up, r.weights, r.groups, c.tp);
        sum_of_experts(c, c.tp, y, y, out, r.slots);
        return y;
    }
    void rebuild(Ctx& c, Tensor x, const Routed& routed, FunctionRef<void()> beside) const override {
        beside();
        first_product(c, x, routed);
    }
    Tensor backward(Ctx& c, Tensor dy, Tensor dx, FunctionRef<Tensor()> beside) const override;

private:
    // The rows of a micro-batch by expert, all kept: slots i32[n, k], sources i32[rows], rows [rows, D],
    // weights acc [rows], gate_up [rows, 2F/P].
    struct Rows : ExpertProducts::Kept {
        Tensor slots, sources;
    };
    Rows first_product(Ctx& c, Tensor x, const Routed& routed) const;
    ExpertProducts products_;
};

LocalExperts::Rows LocalExperts::first_product(Ctx& c, Tensor x, const Routed& routed) const {
    const int64_t tokens = x.rows() * c.tp.size(), k = routed.experts.cols(), assignments = tokens * k,
                  experts = products_.experts(), count = grouped_rows(assignments, experts);
    Rows r;
    r.groups = {.begins = c.frame.keep(Dtype::i32, {experts}),
                .counts = c.frame.keep(Dtype::i32, {experts}),
                .assignments = assignments};
    r.slots = c.frame.keep(Dtype::i32, {tokens, k});
    r.sources = c.frame.keep(Dtype::i32, {count});
    r.rows = c.frame.keep(x.dtype, {count, x.cols()});
    r.weights = c.frame.keep(routed.weights.dtype, {count});
    r.gate_up = c.frame.keep(x.dtype, {count, products_.width()});
    const Scope temps(c.temp);
    const Tensor chosen = gather_tokens(c, routed.experts), weights = gather_tokens(c, routed.weights);
    c.k.group_by_expert(c.exec, r.slots, r.sources, r.groups, chosen, nullptr);
    c.k.gather_rows(c.exec, column(r.weights), column(weights), r.sources, 1);
    c.k.gather_rows(c.exec, r.rows, gather_tokens(c, x), r.sources, k);
    products_.first(c, r.gate_up, r.rows, r.groups, c.tp);
    for (const Tensor& tensor :
         {r.groups.begins, r.groups.counts, r.slots, r.sources, r.rows, r.weights, r.gate_up})
        c.frame.push(this, tensor);
    return r;
}

Tensor LocalExperts::backward(Ctx& c, Tensor dy, Tensor dx, FunctionRef<Tensor()> beside) const {
    Rows r;
    for (Tensor* tensor :
         {&r.gate_up, &r.weights, &r.rows, &r.sources, &r.slots, &r.groups.counts, &r.groups.begins})
        *tensor = c.frame.pop(this);
    r.groups.assignments = r.slots.count();
    const Dtype type = dy.dtype, acc = r.weights.dtype;
    const int64_t k = r.slots.cols();
    const Tensor base = beside(), dchosen = c.temp.alloc(acc, {dy.rows(), k});
    const Scope temps(c.temp);
    const Tensor dweights = c.temp.alloc(acc, {r.weights.count()});
    const auto bring = [&] {
        const Tensor drows = c.temp.alloc(type, r.rows.shape);
        c.k.gather_rows(c.exec, drows, gather_tokens(c, dy), r.sources, k);
        return drows;
    };
    const Tensor drows =
        products_.backward(c, r, dweights, bring, c.tp, ExpertProducts::WeightGradients::later);
    sum_of_experts(c, c.tp, dx, base, drows, r.slots);
    numbers_of_tokens(c, c.tp, dchosen, dweights, r.slots);
    return dchosen;
}

}  // namespace

std::unique_ptr<Experts> local_experts(const ExpertProducts& products) {
    return std::make_unique<LocalExperts>(products);
}

}  // namespace coeus
