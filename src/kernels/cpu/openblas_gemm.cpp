// SPDX-License-Identifier: Apache-2.0
#include "openblas_gemm.hpp"

#include "cpu.hpp"

#include <cblas-openblas.h>

namespace coeus::cpu {

namespace {

CBLAS_TRANSPOSE order(const Operand& operand) {
    return operand.is_transposed ? CblasTrans : CblasNoTrans;
}

}  // namespace

void openblas_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth) {
    if (c && c.data != d.data) Cpu::cast(exec, d, c);
    openblas_set_num_threads(exec.threads);
    cblas_dgemm(CblasRowMajor, order(a), order(b), blasint(d.rows()), blasint(d.cols()), blasint(depth), 1.0,
                a.tensor.as<const double>(), blasint(a.tensor.ld), b.tensor.as<const double>(),
                blasint(b.tensor.ld), c ? 1.0 : 0.0, d.as<double>(), blasint(d.ld));
}

}  // namespace coeus::cpu
