// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/param.hpp"

#include "coeus/base/random.hpp"

namespace coeus {

double Init::value(uint64_t seed, const std::string& name, uint64_t index) const {
    if (std == 0) return constant;
    double u = RandomStream(seed, name).uniform(index);
    if (bound > 0) {
        // uniform over the probability mass between the bounds
        const double below = normal_cdf(-bound / std);
        u = below + u * (1 - 2 * below);
    }
    return std * normal_quantile(u);
}

}  // namespace coeus
