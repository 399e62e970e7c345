// SPDX-License-Identifier: Apache-2.0
// What a deck says of its optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

struct OptimizerOptions {
    std::string name = "AdamW";
    double lr = 8e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

}  // namespace coeus
