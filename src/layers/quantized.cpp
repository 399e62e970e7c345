// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/quantized.hpp"

namespace coeus {

namespace {

int64_t matrices_of(const Tensor& x, const Groups& experts) {
    return experts ? experts.number() : x.shape.rank == 3 ? x.shape[0] : 1;
}

void agree(Ctx& c, Tensor bits, const Communicator& ranks, Exchange exchange) {
    if (ranks.size() == 1) return;
    const ObservedExchange noted(c.exec, exchange, bits);
    ranks.all_reduce(c.exec, bits, Reduce::max);
}

// The largest magnitude of each group, over all ranks; absent if quantize() finds it by itself.
Tensor largest_magnitudes(Ctx& c, Tensor x, ScaleGroups groups, const Division& by, const Groups& experts) {
    const bool by_rows = groups == ScaleGroups::rows, by_one = groups == ScaleGroups::one;
    if (!by_one && groups != ScaleGroups::cols && !(by_rows && by.column_ranks.size() > 1)) return {};
    const Tensor bits = c.temp.alloc(Dtype::i32, scale_shape(groups, x.shape, matrices_of(x, experts)));
    c.k.zero(c.exec, bits);
    c.k.largest_magnitudes(c.exec, bits, x, groups, experts);
    if (by_one || by_rows) agree(c, bits, by.column_ranks, Exchange::agree_on_scales);
    if (!by_rows) {
        agree(c, bits, by.other_row_ranks, Exchange::agree_on_scales);
        agree(c, bits, by.row_ranks, Exchange::agree_on_context_scales);
    }
    return bits;
}

}  // namespace

void quantize_to(Ctx& c, Tensor q, Tensor x, const Form& form, const Division& division,
                 const Groups& experts) {
    const Scope temps(c.temp);
    const Tensor bits = largest_magnitudes(c, x, form.groups, division, experts);
    c.k.quantize(c.exec, q, x, bits, form.rule, experts);
}

Tensor quantized(Ctx& c, Tensor x, const Form& form, const Division& division, const Groups& experts) {
    if (!form.is_8_bit()) return x;
    const Tensor q = c.temp.alloc(form.type, x.shape, form.groups, matrices_of(x, experts));
    quantize_to(c, q, x, form, division, experts);
    return q;
}

void copy_quantized(Ctx& c, Tensor to, Tensor from, int64_t matrices) {
    c.k.cast(c.exec, to, from);
    c.k.cast(c.exec, scales_of(to, matrices), scales_of(from, matrices));
}

void multiply(Ctx& c, Tensor d, Operand a, Operand b, Tensor plus, bool fast) {
    if (a.tensor.groups == ScaleGroups::none)
        c.k.gemm(c.exec, d, a, b, plus);
    else
        c.k.scaled_gemm(c.exec, d, a, b, plus, fast);
}

}  // namespace coeus
