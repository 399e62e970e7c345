// SPDX-License-Identifier: Apache-2.0
// StateTypes: the element types of weights, gradients and moments, and of the reduction of gradients.
#pragma once

#include "coeus/base/types.hpp"
#include "coeus/state/frozen.hpp"
#include "coeus/state/precision.hpp"

namespace coeus {

/// The element types of a run, and where its state is.
struct StateTypes {
    Dtype master = Dtype::f32;   ///< type of the weights that the optimizer updates
    Dtype compute = Dtype::f32;  ///< type of the weights that the layers use
    /// On a GPU: the moments, and the masters if offloads_master(), are in host memory (offloaded.hpp), as
    /// are the inputs of recomputed blocks (block_inputs.hpp).
    bool offload = false;
    Precision precision = {};  ///< what the layers compute in 8 bits
    /// Layers add products to gradients in bfloat16, if these are not partial (Storage::g). The layers
    /// compute in bfloat16 then, without 8 bits.
    bool gradients_in_bf16 = false;
    Frozen frozen = {};  ///< which parameters are not trained
    /// True if the masters are offloaded: no layer reads them, since the compute type differs.
    bool offloads_master() const { return offload && compute != master; }
    /// Type of gradients, of their sums over ranks, and of statistics: f64 if the compute type is f64,
    /// otherwise f32.
    Dtype accumulate() const { return compute == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
};

}  // namespace coeus
