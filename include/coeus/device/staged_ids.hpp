// SPDX-License-Identifier: Apache-2.0
// StagedIds: token ids, positions and the like, which the host writes and kernels read.
#pragma once

#include "coeus/device/staged_tensor.hpp"

namespace coeus {

class StagedIds {
public:
    StagedIds() = default;
    /// Allocates i32[places, count] on the host and, if the device is a GPU, i32[count] there. `what` names
    /// the memory in errors.
    StagedIds(const Device& device, int64_t count, const std::string& what, int64_t places = 1)
        : ids_(device, Dtype::i32, {count}, what, places) {}

    /// The ids of a place, for the host to write. An earlier copy from the place must be complete.
    int32_t* host(int64_t place = 0) const { return ids_.host(place).as<int32_t>(); }
    /// Largest number of ids in a place.
    int64_t count() const { return ids_.count(); }
    /// The first `count` ids of a place as i32[count] where the Exec runs; on a GPU, copied there as work of
    /// its queue.
    Tensor brought(Exec& exec, int64_t count, int64_t place = 0) const {
        return ids_.brought(exec, count, place);
    }

private:
    StagedTensor ids_;
};

}  // namespace coeus
