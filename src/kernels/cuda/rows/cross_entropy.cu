// SPDX-License-Identifier: Apache-2.0
// The loss of the head: one block for each row of logits.
#include "../../rows/cross_entropy.hpp"
#include "../../rows/matrix.hpp"
#include "../cuda.hpp"
#include "../launch.hpp"
#include "team.hpp"

#include <cmath>
#include <limits>

namespace coeus::cuda {

namespace {

template <class T>
__global__ void log_sum_exp_kernel(Acc<T>* lse, Acc<T>* at_label, Rows<const T> logits,
                                   Rows<const int32_t> labels, int64_t width, int64_t first, Acc<T> f) {
    const BlockTeam team(shared_memory());
    const int64_t t = blockIdx.x, column = *labels[t] - first;
    const Acc<T> sum = log_sum_exp_row(team, logits[t], width, f);
    if (!team.first()) return;
    lse[t] = sum;
    at_label[t] = column >= 0 && column < width ? f * load(logits[t][column]) : Acc<T>(0);
}

template <class A>
__global__ void add_log_sum_exp_kernel(A* lse, Rows<const A> parts, int64_t count, int64_t rows) {
    grid_team().each(rows, [=](int64_t t) { lse[t] = add_log_sum_exp_at(parts, count, t); });
}

template <class T>
__global__ void largest_logits_kernel(Rows<Acc<T>> largest, Rows<const T> logits, int64_t width, Acc<T> f) {
    const BlockTeam team(shared_memory());
    const int64_t t = blockIdx.x;
    const Acc<T> found = largest_of_row(team, logits[t], width);
    if (team.first()) *largest[t] = f * found;
}

// See Kernels::cross_entropy.
template <class T>
struct CrossEntropy {
    Acc<T>*losses, *z_losses;
    Rows<T> dlogits;
    Rows<const T> logits;
    Rows<const int32_t> labels;
    const Acc<T>*lse, *at_label;
    int64_t width;
    VocabularyPart part;
    double weight, z_weight;
    const StepScalars* scalars;
};

template <bool has_z, class T>
__device__ void cross_entropy_of_row(const CrossEntropy<T>& of) {
    using A = Acc<T>;
    const BlockTeam team(shared_memory());
    const int64_t t = blockIdx.x;
    const int32_t label = *of.labels[t];
    const A scale = A(of.weight * of.scalars->loss_scale), w = A(of.z_weight);
    if (team.first()) {
        A loss = token_loss(label, of.part.total, scale, of.lse[t], of.at_label[t]);
        if constexpr (has_z) {
            const A z_loss = token_z_loss(label, of.part.total, scale, w, of.lse[t]);
            of.z_losses[t] = z_loss;
            loss += z_loss;
        }
        of.losses[t] = loss;
    }
    if (of.dlogits.data)
        cross_entropy_gradient_row<has_z>(team, of.dlogits[t], of.logits[t], label - of.part.first, of.width,
                                          A(of.part.scale), of.lse[t],
                                          label >= 0 && label < of.part.total ? scale : A(0), w);
}

template <class T>
__global__ void cross_entropy_kernel(CrossEntropy<T> of) {
    cross_entropy_of_row<false>(of);
}

template <class T>
__global__ void cross_entropy_z_kernel(CrossEntropy<T> of) {
    cross_entropy_of_row<true>(of);
}

}  // namespace

void Cuda::log_sum_exp(Exec& exec, Tensor lse, Tensor at_label, Tensor logits, Tensor labels,
                       VocabularyPart part) {
    require(
        lse.count() == logits.rows() && at_label.count() == logits.rows() && labels.count() == logits.rows(),
        "log sum exp: needs one label and one result for each row");
    dispatch(logits.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        launch(exec, "log_sum_exp", {blocks_for(logits.rows()), 512, BlockTeam::shared_bytes},
               log_sum_exp_kernel<T>, lse.as<A>(), at_label.as<A>(), rows_of<const T>(logits),
               rows_of<const int32_t>(labels), logits.cols(), part.first, A(part.scale));
    });
}

void Cuda::add_log_sum_exp(Exec& exec, Tensor lse, Tensor parts) {
    require(lse.count() == parts.cols(), "log sum exp: parts and sum differ in length");
    launch(exec, "add_log_sum_exp", {blocks_for(div_ceil(lse.count(), 256))}, add_log_sum_exp_kernel<float>,
           lse.as<float>(), rows_of<const float>(parts), parts.rows(), lse.count());
}

void Cuda::largest_of_rows(Exec& exec, Tensor largest, Tensor logits, double scale) {
    require(largest.count() == logits.rows(), "largest of rows: needs one result for each row");
    dispatch(logits.dtype, [&]<class T>(T) {
        launch(exec, "largest_of_rows", {blocks_for(logits.rows()), 512, BlockTeam::shared_bytes},
               largest_logits_kernel<T>, rows_of<Acc<T>>(largest), rows_of<const T>(logits), logits.cols(),
               Acc<T>(scale));
    });
}

void Cuda::cross_entropy(Exec& exec, Tensor losses, Tensor z_losses, Tensor dlogits, Tensor logits,
                         Tensor labels, Tensor lse, Tensor at_label, VocabularyPart part, double weight,
                         double z_weight, const StepScalars& scalars) {
    require(losses.count() == logits.rows() && labels.count() == logits.rows() &&
                lse.count() == logits.rows() && at_label.count() == logits.rows() &&
                (!z_losses || z_losses.count() == logits.rows()),
            "cross entropy: needs one label and one loss for each row");
    dispatch(logits.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const CrossEntropy<T> of = {losses.as<A>(),
                                    z_losses ? z_losses.as<A>() : nullptr,
                                    rows_of<T>(dlogits),
                                    rows_of<const T>(logits),
                                    rows_of<const int32_t>(labels),
                                    lse.as<const A>(),
                                    at_label.as<const A>(),
                                    logits.cols(),
                                    part,
                                    weight,
                                    z_weight,
                                    &scalars};
        launch(exec, "cross_entropy", {blocks_for(logits.rows()), 512, BlockTeam::shared_bytes},
               z_losses ? cross_entropy_z_kernel<T> : cross_entropy_kernel<T>, of);
    });
}

}  // namespace coeus::cuda
