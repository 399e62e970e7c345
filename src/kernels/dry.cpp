// SPDX-License-Identifier: Apache-2.0
// The table for planning runs. It computes nothing, but notes the workspace that the CPU's kernels would
// allocate. Tensors may have addresses without memory.
#include "cpu/workspace.hpp"
#include "observed.hpp"

namespace coeus {

namespace {

struct DryCpu {
    static void gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor) {
        exec.workspace.touch(workspace::gemm(d, a, b, exec.threads));
    }
    static void quantize(Exec& exec, Tensor q, Tensor, Tensor, ScaleRule, const Groups&) {
        exec.workspace.touch(workspace::quantize(q));
    }
    static void quantize_values(Exec& exec, Tensor, Tensor x, Tensor, const Form& form) {
        exec.workspace.touch(workspace::quantize_values(x, form));
    }
    static void scaled_gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor, bool) {
        exec.workspace.touch(workspace::scaled_gemm(d, a, b, exec.threads));
    }
    static void scaled_grouped_gemm(Exec& exec, Tensor d, Tensor a, Operand b, const Groups&, bool) {
        exec.workspace.touch(workspace::scaled_grouped_gemm(d, a, b.tensor, exec.threads));
    }
    static void scaled_grouped_gemm_weights(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor, const Groups&) {
        exec.workspace.touch(workspace::scaled_grouped_gemm(d, a, b, exec.threads));
    }
    static void rms_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor, Tensor x, Tensor,
                                  Tensor, const NormForm&) {
        exec.workspace.touch(workspace::column_sums(dweight, x.rows()));
    }
    static void head_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor x, Tensor,
                                   int64_t head_dim, const NormForm&) {
        exec.workspace.touch(workspace::column_sums(dweight, x.count() / head_dim));
    }
    static void divided_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor x, Tensor, Tensor,
                                      Tensor, int64_t, const NormForm&) {
        exec.workspace.touch(workspace::column_sums(dweight, x.rows()));
    }
    static void add_bias_backward(Exec& exec, Tensor dbias, Tensor dy) {
        exec.workspace.touch(workspace::column_sums(dbias, dy.rows()));
    }
    static void attention_sink_backward(Exec& exec, Tensor dsinks, Tensor, Tensor out, Tensor, Tensor) {
        exec.workspace.touch(workspace::column_sums(dsinks, out.rows()));
    }
    static void layer_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor, Tensor x, Tensor,
                                    Tensor, Tensor) {
        exec.workspace.touch(workspace::column_sums(dweight, x.rows()));
    }
    static void modulate_backward(Exec& exec, Tensor, Tensor dshift, Tensor dscale, Tensor, Tensor x, Tensor,
                                  const SequenceRows& rows, double) {
        exec.workspace.touch(workspace::modulate_backward(dshift, dscale, rows, x.rows()));
    }
    static void attention(Exec& exec, Tensor, Tensor, Tensor q, Tensor, Tensor, Tensor,
                          const AttentionShape& shape) {
        exec.workspace.touch(workspace::attention(q.dtype, shape, exec.threads));
    }
    static void merge_attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                                Tensor document_start, const AttentionShape& shape) {
        const Scope scope(exec.workspace);
        exec.workspace.alloc(out.dtype, out.shape);
        exec.workspace.alloc(lse.dtype, lse.shape);
        attention(exec, out, lse, q, k, v, document_start, shape);
    }
    static void attention_backward(Exec& exec, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor q,
                                   Tensor, Tensor, Tensor, const AttentionShape& shape, bool) {
        exec.workspace.touch(workspace::attention_backward(q.dtype, shape, exec.threads));
    }
    static void attention_cached(Exec& exec, Tensor, Tensor, Tensor, Tensor, Tensor q, Tensor, Tensor, Tensor,
                                 Tensor, const AttentionShape& shape) {
        exec.workspace.touch(workspace::attention_cached(q.dtype, shape, exec.threads));
    }
    static void route(Exec& exec, Tensor, Tensor, Tensor, Tensor logits, Tensor, const RouteOptions&) {
        exec.workspace.touch(workspace::route(logits, exec.threads));
    }
    static void route_backward(Exec& exec, Tensor, Tensor, Tensor logits, Tensor, const RouteOptions&) {
        exec.workspace.touch(workspace::route(logits, exec.threads));
    }
    static void balance_sequences(Exec& exec, Tensor, Tensor, Tensor logits, Tensor, const SequenceRows&,
                                  double, const RouteOptions&, const StepScalars&) {
        exec.workspace.touch(workspace::route(logits, exec.threads));
    }
    static void grouped_gemm(Exec& exec, Tensor, Tensor a, Operand, const Groups&) {
        exec.workspace.touch(workspace::grouped_gemm(a, exec.threads));
    }
    static void grouped_gemm_weights(Exec& exec, Tensor, Tensor a, Tensor, Tensor, const Groups&) {
        exec.workspace.touch(workspace::grouped_gemm(a, exec.threads));
    }
    static void add_group_bias_backward(Exec& exec, Tensor dbias, Tensor, Tensor dy, Tensor, Tensor,
                                        const Groups&) {
        exec.workspace.touch(workspace::group_bias_backward(dbias, dy));
    }
    static void sum(Exec& exec, double*, Tensor a) { exec.workspace.touch(workspace::sum(a)); }
    static void sum_of_squares(Exec& exec, double*, Tensor a) { exec.workspace.touch(workspace::sum(a)); }
};

}  // namespace

const Kernels& dry_kernels() {
    static constexpr Kernels table =
        observed_table<DryCpu>("dry", workspace::thin_rows, 1, true, workspace::most_row_bytes);
    return table;
}

}  // namespace coeus
