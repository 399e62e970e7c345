// SPDX-License-Identifier: Apache-2.0
// The GPU models that memory plans and MFU know: their memory and their peak rates.
#pragma once

#include "coeus/base/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// A GPU model, with data from NVIDIA's data sheets.
struct GpuModel {
    std::string name;          ///< as passed to --gpu
    std::string title;         ///< the driver's name for it, after "NVIDIA "
    int capability = 0;        ///< the compute capability: 90 for sm_90
    int64_t memory_bytes = 0;  ///< the total memory that the driver reports
    double bf16 = 0;           ///< dense peak with tensor cores, FLOP/s
    double f32 = 0;            ///< peak without tensor cores, FLOP/s; 0: unknown
};

const std::vector<GpuModel>& gpu_models();

/// The model with this `name`. ConfigError if it is unknown, with the nearest name and all names.
const GpuModel& gpu_model(const std::string& name);

/// Dense peak in FLOP/s of a GPU, by the name that its driver reports: with tensor cores for bf16, without
/// them for f32, as Coeus computes products. Nothing for an unknown GPU (or a MIG part): then no MFU is
/// printed, rather than a guess.
std::optional<double> gpu_peak_flops(const std::string& device_name, Dtype dtype);

}  // namespace coeus
