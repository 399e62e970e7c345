// SPDX-License-Identifier: Apache-2.0
// RopeScaling: how the frequencies of RoPE are changed so that a model attends to longer texts than those it
// was trained with. The formulas are those of transformers' modeling_rope_utils.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace coeus {

/// Position interpolation (Chen et al. 2023): f/factor.
struct LinearScaling {
    double factor = 1;

    bool operator==(const LinearScaling&) const = default;
};

/// Dynamic NTK: the base grows with the length of a row. With s = length/original_positions, at least 1, it
/// is theta (factor s - factor + 1)^(width / (width - 2)). A row of at most the original length is not
/// scaled.
struct DynamicScaling {
    double factor = 1, original_positions = 2048;

    bool operator==(const DynamicScaling&) const = default;
};

/// Llama 3.1's scaling, with the wavelength l = 2 pi / f. If l < original/high: f. If l > original/low:
/// f/factor. In between: linear in original/l. If low = high, nothing is in between (Llama 4).
struct Llama3Scaling {
    double factor = 8, low_frequency = 1, high_frequency = 4, original_positions = 8192;

    bool operator==(const Llama3Scaling&) const = default;
};

/// YaRN (Peng et al. 2023, section 3.2, "NTK-by-parts"). Pairs that turn more than beta_fast times within the
/// original positions keep their frequency; those that turn less than beta_slow times have f/factor; it is
/// linear in the number of the pair in between.
struct YarnScaling {
    double factor = 32, original_positions = 4096, beta_fast = 32, beta_slow = 1;
    bool truncate = true;  ///< round the bounds between these pairs outwards to whole numbers
    /// Factor of cos and sin, so that scores grow by its square (section 3.4). 0: by the other fields.
    double attention_factor = 0;
    /// With m(x) = 0.1 x ln(factor) + 1, the factor is m(mscale) / m(mscale_all_dim) if both are given, and
    /// m(1) if not (DeepSeek-AI 2024, DeepSeek-V3, section 4.3 and its published code).
    double mscale = 0, mscale_all_dim = 0;

    /// m(x).
    double magnitude(double x) const;
    bool operator==(const YarnScaling&) const = default;
};

/// LongRoPE (Ding et al. 2024): the frequency of pair j is f/long_factor[j] if the row is longer than the
/// original positions, f/short_factor[j] if not.
struct LongRopeScaling {
    std::vector<double> short_factor, long_factor;  ///< [width/2] each, greater than 0
    double original_positions = 4096;
    /// How many times longer rows may be: cos and sin grow by sqrt(1 + ln(factor) / ln(original_positions)),
    /// in short rows too.
    double factor = 1;
    double attention_factor = 0;  ///< the factor of cos and sin; 0: by the other fields

    bool operator==(const LongRopeScaling&) const = default;
};

/// std::monostate: not scaled.
using RopeScaling =
    std::variant<std::monostate, Llama3Scaling, YarnScaling, LinearScaling, DynamicScaling, LongRopeScaling>;

/// f_j = theta^(-2j/width), scaled: width/2 frequencies, in double. `length`: positions of a row, on which
/// the dynamic kind and LongRoPE depend.
std::vector<double> rope_frequencies(int64_t width, double theta, const RopeScaling& scaling, int64_t length);
/// The factor of cos and sin; 1 but for YaRN and LongRoPE.
double rope_magnitude(const RopeScaling& scaling);

}  // namespace coeus
