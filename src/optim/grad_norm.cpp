// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/grad_norm.hpp"

#include "coeus/device/named_range.hpp"
#include "coeus/state/replica.hpp"

namespace coeus {

void measure_norm(Exec& exec, const Kernels& kernels, const Parameters& parameters, StepScalars& scalars,
                  double max_norm, const Communicator& owners) {
    const NamedRange range("gradient_norm");
    for (const Storage& storage : parameters.storages())
        if (storage.trainable() && counts_here(storage.params().front(), storage.place()))
            kernels.sum_of_squares(exec, &scalars.squared_norm, storage.gradient);
    {
        const ObservedExchange noted(exec, Exchange::sum_squared_norm);
        owners.all_reduce(exec, Tensor(&scalars.squared_norm, Dtype::f64, {1}));
    }
    kernels.finish_norm(exec, scalars, max_norm);
}

}  // namespace coeus
