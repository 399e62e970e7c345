// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/workspace.hpp"
#include "cpu.hpp"

#include <cblas.h>

namespace coeus::cpu {

namespace {

template <class A>
void multiply(Tensor d, const Operand& a, const Operand& b, int64_t depth, A beta) {
    const auto ta = a.is_transposed ? CblasTrans : CblasNoTrans,
               tb = b.is_transposed ? CblasTrans : CblasNoTrans;
    const int m = int(d.rows()), n = int(d.cols()), k = int(depth);
    Tensor x = a.tensor, y = b.tensor;
    if constexpr (std::is_same_v<A, double>)
        cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, x.as<A>(), int(x.ld), y.as<A>(), int(y.ld), beta,
                    d.as<A>(), int(d.ld));
    else
        cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, x.as<A>(), int(x.ld), y.as<A>(), int(y.ld), beta,
                    d.as<A>(), int(d.ld));
}

Tensor converted(Exec& exec, Tensor t) {
    Tensor copy = exec.workspace.alloc(Dtype::f32, {t.rows(), t.cols()});
    Cpu::cast(exec, copy, t);
    return copy;
}

}  // namespace

void Cpu::gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c) {
    const int64_t m = a.is_transposed ? a.tensor.cols() : a.tensor.rows();
    const int64_t k = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    const int64_t n = b.is_transposed ? b.tensor.rows() : b.tensor.cols();
    require(k == (b.is_transposed ? b.tensor.cols() : b.tensor.rows()) && d.rows() == m && d.cols() == n,
            "gemm: shapes do not fit");
    if (m == 0 || n == 0) return;
    Scope scope(exec.workspace);
    if (omp_get_max_threads() != exec.threads) omp_set_num_threads(exec.threads);
    if (a.tensor.dtype == Dtype::bf16) {
        a.tensor = converted(exec, a.tensor);
        b.tensor = converted(exec, b.tensor);
    }
    const Dtype type = a.tensor.dtype;
    Tensor target = d.dtype == type ? d : exec.workspace.alloc(type, {m, n});
    if (c && (c.data != d.data || target.data != d.data)) Cpu::cast(exec, target, c);
    if (k == 0) {
        if (!c) Cpu::zero(exec, target);
    } else if (type == Dtype::f64)
        multiply<double>(target, a, b, k, c ? 1 : 0);
    else
        multiply<float>(target, a, b, k, c ? 1 : 0);
    if (target.data != d.data) Cpu::cast(exec, d, target);
}

}  // namespace coeus::cpu
