// SPDX-License-Identifier: Apache-2.0
// StagedIds: token ids, positions and the like, which the host writes and kernels read.
#pragma once

#include "coeus/device/exec.hpp"

namespace coeus {

class StagedIds {
public:
    StagedIds() = default;
    /// Takes the memory of i32[places, count] on the host and, of a GPU, of i32[count] there. `what` names it
    /// in errors.
    StagedIds(const Device& device, int64_t count, const std::string& what, int64_t places = 1);

    /// Of a place, for the host to write, once what was brought from there before has arrived.
    int32_t* host(int64_t place = 0) const { return host_.view.as<int32_t>() + place * count_; }
    /// Most ids of a place.
    int64_t count() const { return count_; }
    /// The first ones of a place, where the Exec runs, as its work.
    Tensor brought(Exec& exec, int64_t count, int64_t place = 0) const;

private:
    OwnedTensor host_, there_;
    int64_t count_ = 0;
};

}  // namespace coeus
