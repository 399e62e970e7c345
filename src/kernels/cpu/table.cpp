// SPDX-License-Identifier: Apache-2.0
#include "cpu.hpp"

namespace coeus {

const Kernels& cpu_kernels() {
    static constexpr Kernels table = observed_table<cpu::Cpu>("cpu");
    return table;
}

}  // namespace coeus
