// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/adam.hpp"

#include "coeus/base/random.hpp"

#include <cmath>

namespace coeus {

void Adam::begin_step(StepScalars& scalars, uint64_t step, double learning_rate, int64_t valid_tokens) const {
    require(step > 0, "steps count from 1");
    require(valid_tokens > 0, "a step without valid tokens has no mean loss");
    scalars = StepScalars{};
    scalars.step = step;
    scalars.learning_rate = learning_rate;
    scalars.bias_correction1 = 1 - std::pow(options_.beta1, double(step));
    scalars.bias_correction2 = 1 - std::pow(options_.beta2, double(step));
    scalars.loss_scale = 1 / double(valid_tokens);
}

void Adam::measure_norm(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                        StepScalars& scalars, double max_norm) const {
    for (const Storage& storage : parameters.storages())
        if (storage.trainable()) kernels.sum_of_squares(exec, &scalars.squared_norm, storage.g);
    kernels.finish_norm(exec, scalars, max_norm);
}

void Adam::update(Exec& exec, const Kernels& kernels, const Parameters& parameters,
                  const StepScalars& scalars) const {
    for (const Storage& storage : parameters.storages()) {
        if (!storage.trainable()) continue;
        for (const Param& param : storage.params()) {
            AdamOptions options = options_;
            options.stream = stream_of(param.name);
            const bool has_compute = parameters.types().compute != parameters.types().master;
            kernels.adam(exec,
                         {.master = storage.rows_of(param, storage.master),
                          .exp_avg = storage.rows_of(param, storage.exp_avg),
                          .exp_avg_sq = storage.rows_of(param, storage.exp_avg_sq),
                          .grad = storage.rows_of(param, storage.g),
                          .compute = has_compute ? storage.rows_of(param, storage.w) : Tensor{}},
                         options, scalars);
        }
    }
}

}  // namespace coeus
