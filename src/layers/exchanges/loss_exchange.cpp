// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/loss_exchange.hpp"

namespace coeus {

namespace {

VocabularyPart part_of(const Param& output, const Communicator& tp, int rank, double scale) {
    return {.first = output.part(tp.size(), rank).first_row, .total = output.shape.rows(), .scale = scale};
}

class SplitLoss : public LossExchange {
public:
    void statistics(Ctx& c, Tensor parts, Tensor at_label, Tensor logits, Tensor labels, const Param& output,
                    double scale) const override {
        const Tensor own = parts.slice_rows(c.tp.rank(), 1).reshape({parts.cols()});
        c.k.log_sum_exp(c.exec, own, at_label, logits, labels, part_of(output, c.tp, c.tp.rank(), scale));
        if (c.tp.size() == 1) return;
        {
            const ObservedExchange noted(c.exec, Exchange::gather_log_sums, parts);
            c.tp.all_gather(c.exec, parts.reshape({parts.count()}), own);
        }
        const ObservedExchange noted(c.exec, Exchange::sum_label_logits, at_label);
        c.tp.all_reduce(c.exec, at_label);
    }
};

class WholeLoss : public LossExchange {
public:
    void statistics(Ctx& c, Tensor parts, Tensor at_label, Tensor logits, Tensor labels, const Param& output,
                    double scale) const override {
        const Scope temps(c.temp);
        // the last ranks may have fewer columns
        const int64_t ranks = c.tp.size(), n = logits.rows(), width = div_ceil(output.shape.rows(), ranks);
        const Tensor all = c.temp.alloc(logits.dtype, {ranks * n, width}),
                     own = all.slice_rows(c.tp.rank() * n, n), elsewhere = c.temp.alloc(at_label.dtype, {n});
        c.k.zero(c.exec, own);
        c.k.cast(c.exec, own.slice_cols(0, logits.cols()), logits);
        {
            const ObservedExchange noted(c.exec, Exchange::gather_logits, all);
            c.tp.all_gather(c.exec, all, own);
        }
        c.k.zero(c.exec, at_label);
        for (int rank = 0; rank < ranks; ++rank) {
            const Tensor theirs =
                all.slice_rows(rank * n, n).slice_cols(0, output.part(c.tp.size(), rank).rows);
            c.k.log_sum_exp(c.exec, parts.slice_rows(rank, 1).reshape({n}), elsewhere, theirs, labels,
                            part_of(output, c.tp, rank, scale));
            c.k.add(c.exec, at_label, elsewhere);
        }
    }
};

}  // namespace

const LossExchange& split_loss() {
    static const SplitLoss split;
    return split;
}

const LossExchange& whole_loss() {
    static const WholeLoss whole;
    return whole;
}

}  // namespace coeus
