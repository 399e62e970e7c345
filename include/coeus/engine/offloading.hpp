// SPDX-License-Identifier: Apache-2.0
// Offloading: what an engine on a GPU keeps in the memory of its host: state of the optimizer, and the inputs
// of recomputed blocks.
#pragma once

#include "coeus/layers/block_inputs.hpp"
#include "coeus/state/offloaded.hpp"

#include <optional>

namespace coeus {

class Offloading {
public:
    /// Offloads what the types of the parameters say, in chunks of `chunk` elements.
    void offload_state(const Parameters& parameters, int64_t chunk, const Exec& computation) {
        state_.emplace(parameters, chunk, computation);
    }
    /// Offloads inputs of blocks, which are flows like this one.
    void offload_inputs(const Flow& flow, const Exec& computation) { inputs_.emplace(flow, computation); }

    /// Null: it is where the engine computes.
    Offloaded* state() { return state_ ? &*state_ : nullptr; }
    /// Where blocks keep their inputs: in their frames if they are not offloaded.
    const BlockInputs& inputs() const { return inputs_ ? *inputs_ : inputs_in_frame(); }

private:
    std::optional<Offloaded> state_;
    std::optional<OffloadedInputs> inputs_;
};

}  // namespace coeus
