// SPDX-License-Identifier: Apache-2.0
// StagedTensor: numbers of batches, which the host writes and kernels read.
#pragma once

#include "coeus/device/exec.hpp"

#include <string>

namespace coeus {

class StagedTensor {
public:
    StagedTensor() = default;
    /// Allocates a tensor of this shape for each of some places on the host and, if the device is a GPU, one
    /// there. `what` names the memory in errors.
    StagedTensor(const Device& device, Dtype dtype, const Shape& shape, const std::string& what,
                 int64_t places = 1);

    /// That of a place, for the host to write. An earlier copy from the place must be complete.
    Tensor host(int64_t place = 0) const;
    /// The first rows of a place where the Exec runs; on a GPU, copied there as work of its queue.
    Tensor brought(Exec& exec, int64_t rows, int64_t place = 0) const;
    /// Largest number of elements in a place.
    int64_t count() const { return shape_.rank > 0 ? shape_.count() : 0; }

    /// The bytes of the two allocations.
    static int64_t bytes(Dtype dtype, const Shape& shape, int64_t places = 1) {
        return places * shape.count() * size_of(dtype);
    }

private:
    Shape shape_;
    OwnedTensor host_, there_;
};

}  // namespace coeus
