// SPDX-License-Identifier: Apache-2.0
// StateSnapshot: what a rank owns of weights and moments as they were at some step, in host memory, to go
// back to.
#pragma once

#include "coeus/device/exec.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

class StateSnapshot {
public:
    /// Of the host's memory.
    static int64_t bytes(const Parameters& parameters);
    /// Takes that memory (of a GPU's run pinned, so that copies are work of its queue); both outlive it.
    StateSnapshot(const Parameters& parameters, Exec& exec);

    /// The state as all work of the Exec leaves it.
    void take();
    /// The state is as it was taken; the layers' weights are for the caller to renew.
    void restore() const;

private:
    const Parameters& parameters_;
    Exec& exec_;
    Buffer memory_;
};

}  // namespace coeus
