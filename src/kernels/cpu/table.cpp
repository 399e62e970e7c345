// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/workspace.hpp"
#include "cpu.hpp"

namespace coeus {

const Kernels& cpu_kernels() {
    static constexpr Kernels table = observed_table<cpu::Cpu>("cpu", workspace::chunk_bytes);
    return table;
}

}  // namespace coeus
