// SPDX-License-Identifier: Apache-2.0
#include "openblas_gemm.hpp"

#include "../cpu.hpp"

#if __has_include(<cblas-openblas.h>)
#include <cblas-openblas.h>  // Debian's name
#else
#include <cblas.h>
#endif

namespace coeus::cpu {

namespace {

CBLAS_TRANSPOSE order(const Operand& operand) {
    return operand.is_transposed ? CblasTrans : CblasNoTrans;
}

}  // namespace

void openblas_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth) {
    if (c && c.data != d.data) Cpu::cast(exec, d, c);
    const double *left = Tensor(a.tensor).as<const double>(), *right = Tensor(b.tensor).as<const double>();
    double* out = d.as<double>();
    parallel_blocks(exec, d.rows(), 128, [&](int64_t, int64_t first, int64_t last) {
        // Blocks of rows keep the bits; OpenBLAS's own threads would divide the work by their number and
        // change them. So it gets one thread. From 0.3.29 on it asks OpenMP for the number of threads; this
        // setting applies only to the calling thread within the loop.
        omp_set_num_threads(1);
        cblas_dgemm(CblasRowMajor, order(a), order(b), blasint(last - first), blasint(d.cols()),
                    blasint(depth), 1.0, left + first * (a.is_transposed ? 1 : a.tensor.ld),
                    blasint(a.tensor.ld), right, blasint(b.tensor.ld), c ? 1.0 : 0.0, out + first * d.ld,
                    blasint(d.ld));
    });
}

}  // namespace coeus::cpu
