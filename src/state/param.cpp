// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/param.hpp"

namespace coeus {

double Init::value(const RandomStream& stream, uint64_t index) const {
    if (std == 0) return constant;
    double u = stream.uniform(index);
    if (bound > 0) {
        // uniform over the probability mass between the bounds
        const double below = normal_cdf(-bound / std);
        u = below + u * (1 - 2 * below);
    }
    return std * normal_quantile(u);
}

}  // namespace coeus
