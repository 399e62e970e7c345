// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels, one function for each entry of the table. Tensors are in the device's memory.
#pragma once

#include "../math.hpp"
#include "../observed.hpp"

namespace coeus::cuda {

/// The functions behind the table's entries.
struct Cuda {
    static Function<decltype(Kernels::gemm)> gemm;
    static Function<decltype(Kernels::embedding)> embedding;
    static Function<decltype(Kernels::embedding_backward)> embedding_backward;
    static Function<decltype(Kernels::rms_norm)> rms_norm;
    static Function<decltype(Kernels::rms_norm_backward)> rms_norm_backward;
    static Function<decltype(Kernels::layer_norm)> layer_norm;
    static Function<decltype(Kernels::layer_norm_backward)> layer_norm_backward;
    static Function<decltype(Kernels::rope)> rope;
    static Function<decltype(Kernels::attention)> attention;
    static Function<decltype(Kernels::merge_attention)> merge_attention;
    static Function<decltype(Kernels::attention_backward)> attention_backward;
    static Function<decltype(Kernels::attention_cached)> attention_cached;
    static Function<decltype(Kernels::swiglu)> swiglu;
    static Function<decltype(Kernels::swiglu_backward)> swiglu_backward;
    static Function<decltype(Kernels::log_sum_exp)> log_sum_exp;
    static Function<decltype(Kernels::add_log_sum_exp)> add_log_sum_exp;
    static Function<decltype(Kernels::cross_entropy)> cross_entropy;
    static Function<decltype(Kernels::cast)> cast;
    static Function<decltype(Kernels::add)> add;
    static Function<decltype(Kernels::sum_parts)> sum_parts;
    static Function<decltype(Kernels::zero)> zero;
    static Function<decltype(Kernels::sum)> sum;
    static Function<decltype(Kernels::sum_of_squares)> sum_of_squares;
    static Function<decltype(Kernels::finish_norm)> finish_norm;
    static Function<decltype(Kernels::adam)> adam;
};

}  // namespace coeus::cuda
