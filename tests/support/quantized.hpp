// SPDX-License-Identifier: Apache-2.0
// Tensors of 8-bit floats with their memory.
#pragma once

#include "coeus/device/memory.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/quantization.hpp"

namespace coeus::test {

/// Runs kernels with a number of threads.
struct Threads : Exec {
    explicit Threads(int number, int64_t workspace_bytes = 1 << 24) {
        threads = number;
        workspace = Arena(workspace_bytes, "workspace");
    }
};

/// A dense tensor of 8-bit floats with its scales. `matrices` as in scale_shape().
struct Quantized {
    OwnedTensor elements, scales;
    Tensor view;

    Quantized(Dtype type, const Shape& shape, ScaleGroups groups, int64_t matrices = 1)
        : elements(type, shape),
          scales(scale_type(groups), scale_shape(groups, shape, matrices)),
          view(elements) {
        view.scale = scales.view.data;
        view.groups = groups;
    }
    operator Tensor() const { return view; }
};

/// The largest magnitudes of x, or nothing for blocks, which need none.
inline OwnedTensor magnitudes(const Kernels& kernels, Exec& exec, Tensor x, ScaleGroups groups,
                              int64_t matrices = 1, const Groups& experts = {}) {
    if (scale_type(groups) == Dtype::u8) return {};
    OwnedTensor bits(Dtype::i32, scale_shape(groups, x.shape, matrices));
    kernels.largest_magnitudes(exec, bits, x, groups, experts);
    return bits;
}

/// x in 8 bits.
inline Quantized quantized(const Kernels& kernels, Exec& exec, Tensor x, const Form& form,
                           int64_t matrices = 1, const Groups& experts = {}) {
    Quantized q(form.type, x.shape, form.groups, matrices);
    const OwnedTensor bits = magnitudes(kernels, exec, x, form.groups, matrices, experts);
    kernels.quantize(exec, q, x, bits, form.rule, experts);
    return q;
}

}  // namespace coeus::test
