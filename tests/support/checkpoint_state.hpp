// SPDX-License-Identifier: Apache-2.0
// A small state and its place in a run, for tests of what checkpoints hold.
#pragma once

#include "coeus/device/memory.hpp"
#include "coeus/io/checkpoint.hpp"

#include <deque>
#include <string>
#include <vector>

namespace coeus::test {

/// Three weights with their moments, in memory, on one rank; elements begin at `start` and differ.
struct CheckpointState {
    std::deque<OwnedTensor> memory;
    std::vector<CheckpointTensor> tensors;

    explicit CheckpointState(Dtype dtype, double start = 0.5, int64_t vocabulary = 9);
    void add(const std::string& path, Dtype dtype, const Shape& shape, double start);
    /// Of all tensors, one behind the other.
    std::string bytes() const;
    void set_bytes(const std::string& all);
};

/// What /train says after this step.
TrainRecord record_of(int64_t step);

}  // namespace coeus::test
