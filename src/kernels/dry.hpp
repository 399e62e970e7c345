// SPDX-License-Identifier: Apache-2.0
// The kernels of planning runs: nothing is computed. A backend's dry table hides those whose workspace it
// notes.
#pragma once

#include "observed.hpp"

namespace coeus {

struct Dry {
    static void gemm(Exec&, Tensor, Operand, Operand, Tensor) {}
    static void embedding(Exec&, Tensor, Tensor, Tensor, VocabularyPart) {}
    static void embedding_backward(Exec&, Tensor, Tensor, Tensor, VocabularyPart) {}
    static void rms_norm(Exec&, Tensor, Tensor, Tensor, Tensor, double) {}
    static void rms_norm_backward(Exec&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) {}
    static void layer_norm(Exec&, Tensor, Tensor, Tensor, Tensor, Tensor, double) {}
    static void layer_norm_backward(Exec&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) {}
    static void rope(Exec&, Tensor, Tensor, Tensor, int64_t, RopeLayout, bool) {}
    static void attention(Exec&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, const AttentionShape&) {}
    static void merge_attention(Exec&, Tensor, Tensor, Tensor, Tensor) {}
    static void attention_backward(Exec&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                   Tensor, Tensor, const AttentionShape&, bool) {}
    static void attention_cached(Exec&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                 const AttentionShape&) {}
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
    static void sum(Exec&, double*, Tensor) {}
    static void sum_of_squares(Exec&, double*, Tensor) {}
    static void finish_norm(Exec&, StepScalars&, double) {}
    static void adam(Exec&, const AdamTensors&, const AdamOptions&, const StepScalars&) {}
};

}  // namespace coeus
