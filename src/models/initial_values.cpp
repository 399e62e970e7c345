// SPDX-License-Identifier: Apache-2.0
// torchtitan's rule for initial values, which most families share.
#include "coeus/models/family.hpp"

#include <cmath>

namespace coeus {

Init usual_init(WeightRole role, int64_t layer, const DecoderConfig& config) {
    const double output_std = 1 / std::sqrt(double(config.dim));
    const Init output = Init::truncated_normal(output_std, 3 * output_std);
    switch (role) {
            // a tied table starts like an output projection: with N(0, 1), the first loss would be far
            // above ln(vocabulary)
        case WeightRole::embedding: return config.tied ? output : Init::normal(1);
        case WeightRole::output: return output;
        case WeightRole::norm: return config.norm_offset ? Init() : Init::ones();
        case WeightRole::attention_bias:
        case WeightRole::router_bias:
        case WeightRole::balance: return {};
        case WeightRole::attention_in:
        case WeightRole::gate: return Init::normal(0.02);
        case WeightRole::sink:
        case WeightRole::router:
        case WeightRole::expert_bias:
        case WeightRole::attention_out:
        case WeightRole::up:
        case WeightRole::down:
            return Init::normal(0.02 / std::sqrt(2.0 * double(layer + 1)));
            // PyTorch's default for linear layers, which torchtitan keeps
        case WeightRole::joint: return Init::uniform(1 / std::sqrt(2.0 * double(config.dim)));
    }
    throw LogicError("a role without initial values");
}

}  // namespace coeus
