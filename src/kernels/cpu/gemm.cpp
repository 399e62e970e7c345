// SPDX-License-Identifier: Apache-2.0
#include "packed_gemm.hpp"

namespace coeus::cpu {

void Cpu::gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c) {
    const int64_t rows = a.is_transposed ? a.tensor.cols() : a.tensor.rows();
    const int64_t depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    const int64_t cols = b.is_transposed ? b.tensor.rows() : b.tensor.cols();
    require(depth == (b.is_transposed ? b.tensor.cols() : b.tensor.rows()) && d.rows() == rows &&
                d.cols() == cols && (!c || (c.rows() == rows && c.cols() == cols)),
            "gemm: shapes do not fit");
    require(a.tensor.dtype == b.tensor.dtype && (!c || c.dtype == d.dtype), "gemm: types do not fit");
    if (rows == 0 || cols == 0) return;
    if (depth > 0)
        packed_gemm(exec, d, a, b, c, depth);
    else if (c)
        cast(exec, d, c);
    else
        zero(exec, d);
}

}  // namespace coeus::cpu
