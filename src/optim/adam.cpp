// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/adam.hpp"

#include "coeus/base/random.hpp"
#include "coeus/device/named_range.hpp"

#include <cmath>

namespace coeus {

StepScalars Adam::begin_step(uint64_t step, double learning_rate, int64_t valid_tokens) const {
    require(step > 0, "steps count from 1");
    require(valid_tokens > 0, "a step without valid tokens has no mean loss");
    StepScalars scalars;
    scalars.step = step;
    scalars.learning_rate = learning_rate;
    scalars.bias_correction1 = 1 - std::pow(options_.beta1, double(step));
    scalars.bias_correction2 = 1 - std::pow(options_.beta2, double(step));
    scalars.loss_scale = 1 / double(valid_tokens);
    return scalars;
}

void Adam::measure_norm(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                        StepScalars& scalars, double max_norm, const Communicator& owners) const {
    const NamedRange range("gradient_norm");
    for (const Storage& storage : parameters.storages()) {
        const bool counted_elsewhere =
            (storage.is_partial() && parameters.place().tp_rank > 0) || storage.params().front().copy > 0;
        if (storage.trainable() && !counted_elsewhere)
            kernels.sum_of_squares(exec, &scalars.squared_norm, storage.gradient);
    }
    {
        const ObservedExchange noted(exec, Exchange::sum_squared_norm);
        owners.all_reduce(exec, Tensor(&scalars.squared_norm, Dtype::f64, {1}));
    }
    kernels.finish_norm(exec, scalars, max_norm);
}

void Adam::update(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                  const StepScalars& scalars, Offloaded* offloaded) const {
    const NamedRange range("optimizer");
    const auto update_rows = [&](const OwnedRows& rows) {
        const int64_t global_cols = rows.param.shape.cols();
        AdamOptions options = options_;
        options.stream = stream_of(rows.param.name);
        options.first_index = uint64_t(rows.first_row * global_cols + rows.first_col);
        options.run = rows.tensors.master.cols();
        options.stride = uint64_t(global_cols);
        kernels.adam(exec, rows.tensors, options, scalars);
    };
    if (offloaded)
        offloaded->for_each_owned(update_rows);
    else
        parameters.for_each_owned(update_rows);
}

}  // namespace coeus
