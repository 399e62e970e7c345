// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW over all parameters (Kingma and Ba 2015; Loshchilov and Hutter 2019), with clipping by the
// global norm.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/state/offloaded.hpp"

namespace coeus {

class Adam {
public:
    /// beta1, beta2, eps, weight_decay, decoupled and seed of `options` hold for all parameters.
    explicit Adam(const AdamOptions& options) : options_(options) {}

    /// The scalars that a step begins with: its number (from 1), learning rate, bias corrections; no loss
    /// yet.
    StepScalars begin_step(uint64_t step, double learning_rate, int64_t valid_tokens) const;
    /// Norm of the gradients (already summed over the data ranks), clip coefficient, refusals. max_norm 0:
    /// no clipping. `owners`: ranks that together own every parameter once.
    void measure_norm(Exec& exec, const Kernels& kernels, const Parameters& parameters, StepScalars& scalars,
                      double max_norm, const Communicator& owners = Communicator::self()) const;
    /// One pass over what this rank owns of each trainable parameter. Writes nothing where
    /// scalars.refusals is not 0. `offloaded`: of parameters with offloaded state; null: of others.
    void update(Exec& exec, const Kernels& kernels, const Parameters& parameters, const StepScalars& scalars,
                Offloaded* offloaded = nullptr) const;

private:
    AdamOptions options_;
};

}  // namespace coeus
