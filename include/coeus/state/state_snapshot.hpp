// SPDX-License-Identifier: Apache-2.0
// StateSnapshot: a copy in host memory of the weights and moments that this rank owns at some step, to return
// to that step later.
#pragma once

#include "coeus/device/exec.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

class StateSnapshot {
public:
    /// Bytes of host memory.
    static int64_t bytes(const Parameters& parameters);
    /// Allocates the memory; for a run on a GPU it is pinned, so that copies are work of the GPU's queue. The
    /// parameters and the Exec must outlive it.
    StateSnapshot(const Parameters& parameters, Exec& exec);

    /// Copies the state as it is after all work submitted to the Exec.
    void take();
    /// Restores the state that was taken. The caller must refresh the weights that layers use.
    void restore() const;

private:
    const Parameters& parameters_;
    Exec& exec_;
    Buffer memory_;
};

}  // namespace coeus
