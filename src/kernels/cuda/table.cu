// SPDX-License-Identifier: Apache-2.0
#include "cuda.hpp"
#include "workspace.hpp"

namespace coeus {

const Kernels& cuda_kernels() {
    static constexpr Kernels table =
        observed_table<cuda::Cuda>("cuda", cuda::workspace::thin_rows, cuda::workspace::row_multiple, false,
                                   cuda::workspace::most_row_bytes);
    return table;
}

}  // namespace coeus
