// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/measured_backward.hpp"
#include "coeus/kernels/own_attention.hpp"
#include "coeus/kernels/product_options.hpp"

namespace coeus {

const Kernels& cuda_kernels() {
    throw SystemError("this program was built without CUDA (make cuda builds one with it)");
}

void set_product_options(Exec&, const ProductOptions&) {}

std::vector<SearchedProduct> searched_products(Exec&) {
    return {};
}

SearchedProduct keep_searched(Exec&, const std::string&) {
    throw LogicError("there are no products of a GPU in this program");
}

std::string use_cudnn(Exec&) {
    throw ConfigError("this program was built without CUDA (make cuda builds one with it)");
}

AttentionKernel choose_kernel(Exec&, const AttentionCall&) {
    return {};
}

bool has_two_backwards(Exec&, const AttentionCall&) {
    return false;
}

std::optional<MeasuredBackward> measured_backward(Exec&, const AttentionCall&) {
    return {};
}

void take_own_backward(Exec&, const AttentionCall&, const std::string&) {}

void use_own_attention(Exec&) {}

void choose_own_attention(Exec&, OwnAttention) {}

}  // namespace coeus
