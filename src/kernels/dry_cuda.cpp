// SPDX-License-Identifier: Apache-2.0
// The table for planning runs of a GPU; needs no GPU.
#include "cuda/workspace.hpp"
#include "observed.hpp"

namespace coeus {

namespace {

struct DryCuda {
    static void gemm(Exec& exec, Tensor d, Operand a, Operand, Tensor) {
        exec.workspace.touch(cuda::workspace::gemm(d, a.tensor));
    }
    static void scaled_gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c, bool) {
        exec.workspace.touch(cuda::workspace::scaled_gemm(exec, d, a, b, c));
    }
    static void scaled_grouped_gemm(Exec& exec, Tensor, Tensor a, Operand b, const Groups&, bool) {
        exec.workspace.touch(cuda::workspace::scaled_grouped_gemm(a, b.tensor));
    }
    static void scaled_grouped_gemm_weights(Exec& exec, Tensor, Tensor a, Tensor b, const Groups&) {
        exec.workspace.touch(cuda::workspace::scaled_grouped_gemm(a, b));
    }
    static void rms_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor, Tensor x, Tensor,
                                  Tensor) {
        exec.workspace.touch(cuda::workspace::column_sums(dweight, x.rows()));
    }
    static void head_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor x, Tensor, int64_t,
                                   double) {
        exec.workspace.touch(cuda::workspace::column_sums(dweight, x.rows()));
    }
    static void add_bias_backward(Exec& exec, Tensor dbias, Tensor dy) {
        exec.workspace.touch(cuda::workspace::column_sums(dbias, dy.rows()));
    }
    static void attention_sink_backward(Exec& exec, Tensor dsinks, Tensor, Tensor out, Tensor, Tensor) {
        exec.workspace.touch(cuda::workspace::column_sums(dsinks, out.rows()));
    }
    static void layer_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor, Tensor x, Tensor,
                                    Tensor, Tensor) {
        exec.workspace.touch(cuda::workspace::column_sums(dweight, x.rows()));
    }
    static void attention(Exec& exec, Tensor out, Tensor, Tensor q, Tensor, Tensor, Tensor document_start,
                          const AttentionShape& shape) {
        exec.workspace.touch(cuda::workspace::attention(out, q, document_start, shape));
    }
    static void attention_backward(Exec& exec, Tensor dq, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                   Tensor, Tensor, Tensor, const AttentionShape& shape, bool accumulate) {
        exec.workspace.touch(cuda::workspace::attention_backward(dq, shape, accumulate));
    }
    static void sum(Exec& exec, double*, Tensor a) { exec.workspace.touch(cuda::workspace::sum(a)); }
    static void sum_of_squares(Exec& exec, double*, Tensor a) {
        exec.workspace.touch(cuda::workspace::sum(a));
    }
};

}  // namespace

const Kernels& dry_cuda_kernels() {
    static constexpr Kernels table =
        observed_table<DryCuda>("dry cuda", cuda::workspace::chunk_bytes, cuda::workspace::thin_rows, false);
    return table;
}

}  // namespace coeus
