// SPDX-License-Identifier: Apache-2.0
// Causal attention as graphs of cuDNN, which has kernels for all of a graph. Between the forward and the
// backward, both cuDNN's kernels and our own keep the same: the natural logarithm of the sum of exp of the
// scores. So either may follow the other.
#pragma once

#include "coeus/kernels/kernels.hpp"
#include "cudnn_graph.hpp"

#include <optional>

namespace coeus::cuda {

/// True if cuDNN is used for this attention: bfloat16, whole sequences under the causal mask only, keys as
/// wide as values, and heads of whole pieces of 16 bytes that are at most 256 wide.
inline bool cudnn_fits(const Tensor& out, const Tensor& q, const Tensor& document_start,
                       const AttentionShape& s) {
    const auto is_whole = [&](const SequencePart& part) { return part == SequencePart{s.sequence}; };
    return q.dtype == Dtype::bf16 && out.dtype == Dtype::bf16 && !hides_early_keys(s, bool(document_start)) &&
           is_whole(s.queries()) && is_whole(s.keys()) && s.value_width() == s.head_dim &&
           s.head_dim % 8 == 0 && s.head_dim <= 256;
}

/// The sizes, and the distances in elements from one row of an operand to the next.
struct CudnnAttentionShape {
    int64_t batch, sequence, heads, kv_heads, head_dim;
    int64_t ld_out, ld_q, ld_k, ld_v;
    auto operator<=>(const CudnnAttentionShape&) const = default;
};

/// The graph of out = softmax(scale q k^T, causal) v and of lse.
class CudnnAttentionGraph : public CudnnGraph {
public:
    /// SystemError if cuDNN does not support the graph. If `handle` is null, configurations() needs device
    /// properties.
    CudnnAttentionGraph(const CudnnLibrary& library, void* handle, const CudnnAttentionShape& shape);

    enum Id : int64_t { q = 1, k, v, out, lse, scale, hidden };
};

/// The forward with a kernel that was chosen for the GPU of a handle.
class CudnnAttention {
public:
    /// SystemError if no kernel gives the same bits each time with at most `most_workspace` bytes of
    /// workspace.
    CudnnAttention(const CudnnLibrary& library, void* handle, const CudnnAttentionShape& shape,
                   int64_t most_workspace);
    const CudnnPlan& plan() const { return plan_; }
    void run(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
             double scale, const Tensor& workspace) const;

private:
    CudnnAttentionGraph graph_;
    CudnnPlan plan_;
};

/// The part of a batch whose gradients are computed together: so many sequences, and so many key/value heads
/// with their query heads. All parts have this size.
struct CudnnBackwardPart {
    int64_t batch, heads, kv_heads;
    bool operator==(const CudnnBackwardPart&) const = default;
};

/// The memory that the gradients of a part need, in bytes.
struct CudnnBackwardBytes {
    int64_t delta;       ///< float32, one for each query and head
    int64_t sums;        ///< float32 sums of dq; 0 if the kernel is deterministic
    int64_t dq, dk, dv;  ///< kept here, since cuDNN cannot write over q, k and v
    int64_t library;     ///< the most that cuDNN's kernels ask for
    int64_t total() const;
};
CudnnBackwardBytes backward_bytes(const CudnnBackwardPart& part, const AttentionShape& s, bool deterministic);

/// The part that cuDNN computes at once: no larger than needed to keep a GPU busy, and with a workspace of at
/// most processor.cudnn_bytes. Returns nothing without such a part: then our own kernels compute.
std::optional<CudnnBackwardPart> backward_part(const Processor& processor, const AttentionShape& s);

/// True if cuDNN is used for these gradients: as cudnn_fits, gradients in bfloat16 that are overwritten, more
/// than one token, a width that cuDNN's backward knows, and a part that fits into the workspace.
bool cudnn_backward_fits(const Processor& processor, std::initializer_list<Tensor> gradients,
                         const Tensor& out, const Tensor& q, const Tensor& document_start,
                         const AttentionShape& s, bool accumulate);

/// The sizes of a part; `tokens`: those of the whole batch, which are between the statistics of two heads.
struct CudnnBackwardShape {
    int64_t batch, sequence, heads, kv_heads, head_dim, tokens;
    int64_t ld_dout, ld_out, ld_q, ld_k, ld_v;
    bool deterministic;
    auto operator<=>(const CudnnBackwardShape&) const = default;
};

/// The graph of the gradients dq, dk and dv, whose rows follow each other. With P = exp(scale q k^T - lse),
/// delta = rowsum(dout out) and dS = P (dout v^T - delta) scale (Dao et al. 2022, FlashAttention, algorithm
/// 4): dv = P^T dout, dk = dS^T q, dq = dS k. If dq is the result of the product, cuDNN keeps dS in its
/// workspace and adds in a fixed order. If it is a copy of float32 sums, cuDNN adds to these with atomics.
/// cuDNN's notes on an engine do not tell the two apart.
class CudnnBackwardGraph : public CudnnGraph {
public:
    CudnnBackwardGraph(const CudnnLibrary& library, void* handle, const CudnnBackwardShape& shape);

    enum Id : int64_t { q = 1, k, v, out, lse, dout, dq, dk, dv, delta, sums, scale, one, hidden };
};

/// The backward with a kernel that was chosen for the GPU of a handle.
class CudnnBackward {
public:
    /// SystemError if this version of cuDNN has no right kernel, or none with at most `most_workspace` bytes
    /// of workspace.
    CudnnBackward(const CudnnLibrary& library, void* handle, const CudnnBackwardShape& shape,
                  int64_t most_workspace);
    const CudnnPlan& plan() const { return plan_; }
    /// The tensors of one part. `sums` may be empty if the kernel is deterministic.
    struct Operands {
        Tensor dq, dk, dv, dout, out, lse, q, k, v, delta, sums;
    };
    void run(const Operands& operands, double scale, const Tensor& workspace) const;

private:
    CudnnBackwardGraph graph_;
    CudnnPlan plan_;
    bool deterministic_;
};

/// Why this version of cuDNN should not compute the backward of sequences of this length; empty: it may.
std::string wrong_version_for_backward(size_t version, int64_t sequence);

}  // namespace coeus::cuda
