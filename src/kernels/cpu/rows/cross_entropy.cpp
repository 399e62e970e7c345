// SPDX-License-Identifier: Apache-2.0
#include "../../rows/cross_entropy.hpp"

#include "../cpu.hpp"

#include <cmath>
#include <limits>

namespace coeus::cpu {

namespace {

// See Kernels::cross_entropy.
struct CrossEntropy {
    Tensor losses, z_losses, dlogits, logits, labels, lse, at_label;
    VocabularyPart part;
    double scale, z_weight;
};

template <bool has_z, class T>
void compute(Exec& exec, const CrossEntropy& of) {
    using A = Acc<T>;
    const Rows<const int32_t> label_of = rows_of<const int32_t>(of.labels);
    A *loss = of.losses.as<A>(), *z_loss = has_z ? of.z_losses.as<A>() : nullptr;
    const A *sum = of.lse.as<const A>(), *value = of.at_label.as<const A>(), scale = A(of.scale),
            w = A(of.z_weight), f = A(of.part.scale);
    parallel_rows(exec, of.logits.rows(), of.logits.cols(), [&](int64_t t) {
        const int32_t label = *label_of[t];
        const bool inside = label >= 0 && label < of.part.total;
        loss[t] = token_loss(label, of.part.total, scale, sum[t], value[t]);
        if constexpr (has_z) {
            z_loss[t] = token_z_loss(label, of.part.total, scale, w, sum[t]);
            loss[t] += z_loss[t];
        }
        if (of.dlogits)
            cross_entropy_gradient_row<has_z>(Lane(), of.dlogits.row<T>(t), of.logits.row<const T>(t),
                                              label - of.part.first, of.logits.cols(), f, sum[t],
                                              inside ? scale : A(0), w);
    });
}

}  // namespace

void Cpu::log_sum_exp(Exec& exec, Tensor lse, Tensor at_label, Tensor logits, Tensor labels,
                      VocabularyPart part) {
    require(
        lse.count() == logits.rows() && at_label.count() == logits.rows() && labels.count() == logits.rows(),
        "log sum exp: needs one label and one result for each row");
    const Rows<const int32_t> label_of = rows_of<const int32_t>(labels);
    dispatch(logits.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        A *sum = lse.as<A>(), *value = at_label.as<A>();
        const A f = A(part.scale);
        parallel_rows(exec, logits.rows(), logits.cols(), [&](int64_t t) {
            const T* row = logits.row<const T>(t);
            const int64_t column = *label_of[t] - part.first;
            sum[t] = log_sum_exp_row(Lane(), row, logits.cols(), f);
            value[t] = column >= 0 && column < logits.cols() ? f * load(row[column]) : A(0);
        });
    });
}

void Cpu::add_log_sum_exp(Exec& exec, Tensor lse, Tensor parts) {
    require(lse.count() == parts.cols(), "log sum exp: parts and sum differ in length");
    const int64_t count = parts.rows();
    dispatch(lse.dtype, [&]<class A>(A) {
        if constexpr (std::is_same_v<A, bf16>) {
            throw LogicError("log sum exp is in the accumulate type");
        } else {
            A* sum = lse.as<A>();
            const Rows<const A> rows = rows_of<const A>(parts);
            parallel_rows(exec, lse.count(), count,
                          [&](int64_t t) { sum[t] = add_log_sum_exp_at(rows, count, t); });
        }
    });
}

void Cpu::largest_of_rows(Exec& exec, Tensor largest, Tensor logits, double scale) {
    require(largest.count() == logits.rows(), "largest of rows: needs one result for each row");
    dispatch(logits.dtype, [&]<class T>(T) {
        const Rows<Acc<T>> results = rows_of<Acc<T>>(largest);
        parallel_rows(exec, logits.rows(), logits.cols(), [&](int64_t t) {
            *results[t] = Acc<T>(scale) * largest_of_row(Lane(), logits.row<const T>(t), logits.cols());
        });
    });
}

void Cpu::cross_entropy(Exec& exec, Tensor losses, Tensor z_losses, Tensor dlogits, Tensor logits,
                        Tensor labels, Tensor lse, Tensor at_label, VocabularyPart part, double weight,
                        double z_weight, const StepScalars& scalars) {
    require(losses.count() == logits.rows() && labels.count() == logits.rows() &&
                lse.count() == logits.rows() && at_label.count() == logits.rows() &&
                (!z_losses || z_losses.count() == logits.rows()),
            "cross entropy: needs one label and one loss for each row");
    const CrossEntropy of = {
        losses,  z_losses, dlogits, logits, labels, lse, at_label, part, weight * scalars.loss_scale,
        z_weight};
    dispatch(logits.dtype, [&]<class T>(T) {
        if (z_losses)
            compute<true, T>(exec, of);
        else
            compute<false, T>(exec, of);
    });
}

}  // namespace coeus::cpu
