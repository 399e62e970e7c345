// SPDX-License-Identifier: Apache-2.0
#include "cpu.hpp"
#include "workspace.hpp"

namespace coeus {

const Kernels& cpu_kernels() {
    static constexpr Kernels table =
        observed_table<cpu::Cpu>("cpu", workspace::thin_rows, 1, true, workspace::most_row_bytes);
    return table;
}

}  // namespace coeus
