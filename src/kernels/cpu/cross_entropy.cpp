// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/rows/cross_entropy.hpp"

#include "cpu.hpp"

namespace coeus::cpu {

void Cpu::cross_entropy(Exec& exec, Tensor losses, Tensor dlogits, Tensor logits, Tensor labels,
                        const StepScalars& scalars) {
    require(losses.count() == logits.rows() && labels.count() == logits.rows(),
            "cross entropy: one label and loss for each row");
    const int32_t* label = labels.as<const int32_t>();
    dispatch(logits.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        A* loss = losses.as<A>();
        parallel_rows(exec, logits.rows(), logits.cols(), [&](int64_t t) {
            T* gradient = dlogits ? dlogits.row<T>(t) : nullptr;
            loss[t] = cross_entropy_row(Lane(), gradient, logits.row<const T>(t), label[t], logits.cols(),
                                        A(scalars.loss_scale));
        });
    });
}

}  // namespace coeus::cpu
