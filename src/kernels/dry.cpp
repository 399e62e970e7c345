// SPDX-License-Identifier: Apache-2.0
// The table of planning runs: nothing is computed, the workspace that the CPU's kernels would take is noted.
// Tensors may have no memory behind them.
#include "coeus/kernels/workspace.hpp"
#include "observed.hpp"

namespace coeus {

namespace {

struct Dry {
    static void gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor) {
        exec.workspace.touch(workspace::gemm(d, a, b, exec.threads));
    }
    static void embedding(Exec&, Tensor, Tensor, Tensor, VocabularyPart) {}
    static void embedding_backward(Exec&, Tensor, Tensor, Tensor, VocabularyPart) {}
    static void rms_norm(Exec&, Tensor, Tensor, Tensor, Tensor, double) {}
    static void rms_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor, Tensor x, Tensor,
                                  Tensor) {
        exec.workspace.touch(workspace::norm_backward(dweight, x));
    }
    static void layer_norm(Exec&, Tensor, Tensor, Tensor, Tensor, Tensor, double) {}
    static void layer_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor, Tensor x, Tensor,
                                    Tensor, Tensor) {
        exec.workspace.touch(workspace::norm_backward(dweight, x));
    }
    static void rope(Exec&, Tensor, Tensor, Tensor, int64_t, RopeLayout, bool) {}
    static void attention(Exec& exec, Tensor, Tensor, Tensor q, Tensor, Tensor, Tensor,
                          const AttentionShape& shape) {
        exec.workspace.touch(workspace::attention(q.dtype, shape, exec.threads));
    }
    static void merge_attention(Exec&, Tensor, Tensor, Tensor, Tensor) {}
    static void attention_backward(Exec& exec, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor q,
                                   Tensor, Tensor, Tensor, const AttentionShape& shape, bool) {
        exec.workspace.touch(workspace::attention_backward(q.dtype, shape, exec.threads));
    }
    static void attention_cached(Exec& exec, Tensor, Tensor, Tensor, Tensor q, Tensor, Tensor, Tensor, Tensor,
                                 const AttentionShape& shape) {
        exec.workspace.touch(workspace::attention_cached(q.dtype, shape, exec.threads));
    }
    static void swiglu(Exec&, Tensor, Tensor) {}
    static void swiglu_backward(Exec&, Tensor, Tensor, Tensor) {}
    static void log_sum_exp(Exec&, Tensor, Tensor, Tensor, Tensor, VocabularyPart) {}
    static void add_log_sum_exp(Exec&, Tensor, Tensor) {}
    static void cross_entropy(Exec&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, VocabularyPart,
                              const StepScalars&) {}
    static void cast(Exec&, Tensor, Tensor) {}
    static void add(Exec&, Tensor, Tensor) {}
    static void sum_parts(Exec&, Tensor, Tensor) {}
    static void zero(Exec&, Tensor) {}
    static void sum(Exec& exec, double*, Tensor a) { exec.workspace.touch(workspace::sum(a)); }
    static void sum_of_squares(Exec& exec, double*, Tensor a) { exec.workspace.touch(workspace::sum(a)); }
    static void finish_norm(Exec&, StepScalars&, double) {}
    static void adam(Exec&, const AdamTensors&, const AdamOptions&, const StepScalars&) {}
};

}  // namespace

const Kernels& dry_kernels() {
    static constexpr Kernels table = observed_table<Dry>("dry");
    return table;
}

}  // namespace coeus
