// SPDX-License-Identifier: Apache-2.0
// RopeTable: cos and sin for every position and pair (Su et al. 2021), with the scalings of the frequencies
// that let a model attend to longer texts than those it was trained with: Llama 3.1's, or YaRN.
#pragma once

#include "coeus/device/device.hpp"

#include <variant>
#include <vector>

namespace coeus {

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

/// std::monostate: not scaled.
using RopeScaling = std::variant<std::monostate, Llama3Scaling, YarnScaling>;

/// f_j = theta^(-2j/width), scaled: width/2 frequencies, in double.
std::vector<double> rope_frequencies(int64_t width, double theta, const RopeScaling& scaling);
/// The factor of cos and sin; 1 without YaRN.
double rope_magnitude(const RopeScaling& scaling);

class RopeTable {
public:
    /// `width`: columns of a head that are rotated.
    RopeTable(int64_t positions, int64_t width, double theta, const RopeScaling& scaling, Dtype dtype);
    /// [positions, width]: cos of pair j at 2j, sin at 2j + 1. Before allocate() it has a shape, but no data.
    Tensor view() const { return table_.view; }
    void allocate(const Device& device = host_device());

private:
    std::vector<double> frequencies_;
    double magnitude_;
    OwnedTensor table_;
};

}  // namespace coeus
