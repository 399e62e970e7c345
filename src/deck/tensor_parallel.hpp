// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/config/config.hpp"

namespace coeus::deck {

/// ConfigError if parallelism.tensor_parallel_degree breaks several of its rules: it divides the ranks, the
/// sequences and the heads of the model. The message names all of them, and the degrees for this number of
/// ranks that keep all. If it breaks only one, the check of that rule says so. The heads of a model in a
/// folder (model.flavor = "hf") are not looked at.
void check_tensor_parallel(const Config& config, int ranks);

}  // namespace coeus::deck
