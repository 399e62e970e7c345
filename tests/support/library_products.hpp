// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/base/types.hpp"
#include "coeus/device/cpu.hpp"

#include <string>

namespace coeus::test {

/// Whether oneDNN computes products of this type on this CPU. They do not use the workspace that is planned
/// for our own products.
inline bool library_multiplies(Dtype type) {
    const std::string level = cpu_vector_level();
    return type == Dtype::bf16 ? level == "avx512 bf16" : type == Dtype::f32 && level.starts_with("avx512");
}

}  // namespace coeus::test
