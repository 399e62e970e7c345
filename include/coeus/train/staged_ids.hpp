// SPDX-License-Identifier: Apache-2.0
// StagedIds: token ids, positions and the like, which the host writes and kernels read.
#pragma once

#include "coeus/device/exec.hpp"

namespace coeus {

class StagedIds {
public:
    StagedIds() = default;
    /// Takes the memory of i32[count], of a GPU on the host and there. `what` names it in errors.
    StagedIds(const Device& device, int64_t count, const std::string& what);

    /// For the host to write, once what was brought before has arrived.
    int32_t* host() const { return host_.view.as<int32_t>(); }
    int64_t count() const { return host_.view.count(); }
    /// The first ones where the Exec runs, as its work.
    Tensor brought(Exec& exec, int64_t count) const;

private:
    OwnedTensor host_, there_;
};

}  // namespace coeus
