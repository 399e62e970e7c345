// SPDX-License-Identifier: Apache-2.0
// A small state and its position in a run, for tests of the contents of checkpoints.
#pragma once

#include "coeus/device/memory.hpp"
#include "coeus/io/checkpoint.hpp"

#include <deque>
#include <string>
#include <vector>

namespace coeus::test {

/// Three weights with their moments, in memory, on one rank. All elements are different and begin at `start`.
struct CheckpointState {
    std::deque<OwnedTensor> memory;
    std::vector<CheckpointTensor> tensors;

    explicit CheckpointState(Dtype dtype, double start = 0.5, int64_t vocabulary = 9);
    void add(const std::string& path, Dtype dtype, const Shape& shape, double start);
    /// The bytes of all tensors, one after the other.
    std::string bytes() const;
    void set_bytes(const std::string& all);
};

/// The content of /train after this step.
TrainRecord record_of(int64_t step);

}  // namespace coeus::test
