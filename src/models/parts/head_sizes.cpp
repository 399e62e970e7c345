// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/parts/head_sizes.hpp"

#include "coeus/base/error.hpp"

namespace coeus {

void require_heads_fit(const HeadSizes& sizes, int64_t dim) {
    // the nearest numbers are those of heads of an even width, which RoPE needs
    if (const int64_t pairs = dim % 2 == 0 ? dim / 2 : dim; sizes.head_dim < 1)
        throw ConfigError("model.n_heads = {}: must divide model.dim = {} (nearest: {})", sizes.heads, dim,
                          divisors_near(pairs, sizes.heads, pairs));
    if (sizes.head_dim % 2 != 0)
        throw ConfigError("model.head_dim = {}: must be even, because RoPE rotates pairs (nearest: {})",
                          sizes.head_dim, sizes.head_dim + 1);
}

}  // namespace coeus
