// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019), in one kernel.
#pragma once

#include "coeus/optim/optimizer.hpp"

namespace coeus {

/// options.name: "AdamW", with decoupled weight decay, or "Adam".
std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& options, uint64_t seed, size_t group);

}  // namespace coeus
