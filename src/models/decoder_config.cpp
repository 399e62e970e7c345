// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/decoder_config.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

void require_size(const char* field, int64_t value, int64_t most = int64_t(1) << 24) {
    if (value < 1) throw ConfigError("model.{} = {}: must be at least 1", field, value);
    if (value > most) throw ConfigError("model.{} = {}: must be at most {}", field, value, most);
}

// The divisors of n on both sides of a wrong value, for messages.
std::string divisors_near(int64_t n, int64_t value) {
    int64_t below = std::min(value, n), above = value;
    while (below > 1 && n % below != 0) --below;
    while (above < n && n % above != 0) ++above;
    return above > n || above == below ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

}  // namespace

void DecoderConfig::validate() const {
    require_size("dim", dim);
    require_size("n_layers", layers, 1 << 16);
    require_size("n_heads", heads);
    require_size("n_kv_heads", kv_heads);
    require_size("ffn_hidden", ffn_hidden);
    require_size("vocab_size", vocab, 0x7fffffff);
    if (head_dim < 1)
        throw ConfigError("model.n_heads = {}: must divide model.dim = {} (nearest: {})", heads, dim,
                          divisors_near(dim, heads));
    if (head_dim % 2 != 0)
        throw ConfigError("model.head_dim = {}: must be even, because RoPE rotates pairs (nearest: {})",
                          head_dim, head_dim + 1);
    require_size("head_dim", head_dim);
    const double elements = double(layers) * double(dim) * double(4 * head_dim * heads + 3 * ffn_hidden);
    if (elements > 1e15)
        throw ConfigError(
            "model: {:.1e} parameters are more than this program counts (1e15); lower model.dim, "
            "model.n_layers or model.ffn_hidden",
            elements);
    if (heads % kv_heads != 0)
        throw ConfigError("model.n_kv_heads = {}: must divide model.n_heads = {} (nearest: {})", kv_heads,
                          heads, divisors_near(heads, kv_heads));
    if (!(norm_eps > 0))
        throw ConfigError("model.norm_eps = {}: must be greater than 0 (usual: 1e-5)", norm_eps);
    if (!(rope_theta > 0))
        throw ConfigError("model.rope_theta = {}: must be greater than 0 (usual: 500000)", rope_theta);
}

int64_t DecoderConfig::parameters() const {
    const int64_t attention = dim * head_dim * (2 * heads + 2 * kv_heads);
    const int64_t norm = norm_type == NormType::np_layer_norm ? 0 : dim;
    const int64_t layer = attention + 3 * dim * ffn_hidden + 2 * norm;
    return vocab * dim * (tied ? 1 : 2) + layers * layer + norm;
}

double DecoderConfig::flops_per_token(int64_t seq_len) const {
    const int64_t multiplied = parameters() - (tied ? 0 : vocab * dim);
    return 6.0 * double(multiplied) + 6.0 * double(layers * heads * 2 * head_dim) * double(seq_len);
}

int64_t FfnRule::width(int64_t dim) const {
    const int64_t quotient = 8 * dim / 3;  // the published widths round down before they multiply
    return round_up(int64_t(multiplier * double(quotient)), multiple_of);
}

}  // namespace coeus
