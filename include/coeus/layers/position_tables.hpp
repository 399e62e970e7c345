// SPDX-License-Identifier: Apache-2.0
// PositionTables: what the layers of a decoder multiply queries and keys by, for every position of a token.
#pragma once

#include "coeus/layers/rope_table.hpp"

#include <vector>

namespace coeus {

/// Queries are multiplied by 1 + scale ln(1 + floor((p + offset) / floor)) at position p, so that attention
/// to many tokens stays sharp (Llama 4, Ministral 3; the temperature of Nakanishi 2025, Scalable-Softmax).
struct Temperature {
    double scale = 0;     ///< 0: queries stay as they are
    double floor = 8192;  ///< positions per step of the logarithm
    int64_t offset = 1;   ///< 1: a position counts itself (Llama 4); 0: only those before it (Ministral 3)

    explicit operator bool() const { return scale != 0; }
    double factor(int64_t position) const;
    bool operator==(const Temperature&) const = default;
};

class TemperatureTable {
public:
    /// The factor of each position; without a temperature, there is no table.
    TemperatureTable(int64_t positions, const Temperature& temperature, Dtype dtype);
    /// [positions], or an absent tensor. Before allocate() it has a shape, but no data.
    Tensor view() const { return table_.view; }
    void allocate(const Device& device = host_device());

private:
    Temperature temperature_;
    OwnedTensor table_;
};

struct PositionTables {
    std::vector<RopeTable> ropes;  ///< at least one; a layer has the number of its own
    TemperatureTable temperature;

    int64_t positions() const { return ropes.front().view().rows(); }
    int64_t bytes() const {
        const Tensor factors = temperature.view();
        int64_t sum = factors ? factors.bytes() : 0;
        for (const RopeTable& rope : ropes) sum += rope.view().bytes();
        return sum;
    }
    void allocate(const Device& device = host_device()) {
        for (RopeTable& rope : ropes) rope.allocate(device);
        temperature.allocate(device);
    }
};

}  // namespace coeus
