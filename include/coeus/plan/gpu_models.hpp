// SPDX-License-Identifier: Apache-2.0
// The models of GPUs that plans know: their memory and their peaks.
#pragma once

#include "coeus/base/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// A model of GPU, from NVIDIA's data sheets.
struct GpuModel {
    std::string name;          ///< as --gpu takes it
    std::string title;         ///< as its driver says it, after "NVIDIA "
    int64_t memory_bytes = 0;  ///< what the driver reports as total
    double bf16 = 0;           ///< dense peak by tensor cores, FLOP/s
    double f32 = 0;            ///< peak without tensor cores, FLOP/s; 0: not known
};

const std::vector<GpuModel>& gpu_models();

/// By its `name`. ConfigError for an unknown one, with the nearest and all that there are.
const GpuModel& gpu_model(const std::string& name);

/// Dense peak of a GPU by the name that its driver says, in FLOP/s: of bf16 by tensor cores, of f32 without
/// them, as its products are computed. None for an unknown one (or a MIG part), for which no MFU is printed
/// rather than a guess.
std::optional<double> gpu_peak_flops(const std::string& device_name, Dtype dtype);

}  // namespace coeus
