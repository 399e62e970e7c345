// SPDX-License-Identifier: Apache-2.0
// Param: one named parameter of the model: its global shape, how it is sharded, how it starts, how it is
// optimised.
#pragma once

#include "coeus/base/random.hpp"
#include "coeus/device/tensor.hpp"

#include <string>

namespace coeus {

/// How a parameter is divided over an axis. partial: every rank holds it whole, and its gradient is a sum
/// over the axis.
enum class Split : uint8_t { none, rows, cols, partial };
/// Sharding is said once, here. FSDP always splits the rows of what remains.
struct Shard {
    Split tp = Split::none;
    Split ep = Split::none;
};

/// Initial values, a function of (seed, name, global element index): any mesh starts from the same model.
struct Init {
    double constant = 0;  ///< every element, where std is 0
    double std = 0;       ///< of a normal distribution around 0
    double bound = 0;     ///< values beyond +-bound are not drawn; 0: no bound

    static Init ones() { return {.constant = 1}; }
    static Init normal(double std) { return {.std = std}; }
    static Init truncated_normal(double std, double bound) { return {.std = std, .bound = bound}; }
    /// Element `index` of a parameter; `stream` is that of its name.
    double value(const RandomStream& stream, uint64_t index) const;
};

struct Param {
    std::string name;  ///< torchtitan's: "layers.0.attention.wq.weight"
    Shape shape;       ///< global
    Init init;
    Shard shard = {};
    bool trainable = true;
    int64_t first_row = 0;  ///< of this parameter in its Storage

    int64_t rows() const { return shape.rows(); }
};

}  // namespace coeus
