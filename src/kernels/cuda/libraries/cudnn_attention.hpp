// SPDX-License-Identifier: Apache-2.0
// Attention as graphs of cuDNN, which has kernels for all of a graph. Between the forward and the
// backward, both cuDNN's kernels and our own keep the same: the natural logarithm of the sum of exp of the
// scores. So either may follow the other.
#pragma once

#include "coeus/kernels/kernels.hpp"
#include "cudnn_graph.hpp"

#include <optional>
#include <string>

namespace coeus::cuda {

/// Why cuDNN is not used for an attention, in words; empty if it is: for bfloat16, scores in blocks that lie
/// at multiples of 8 tokens (score_blocks.hpp), no other mask than the causal one or none, keys as wide as
/// values, and heads of whole pieces of 16 bytes that are at most 256 wide. Results may have any type.
std::string why_not_cudnn(const Tensor& q, const Tensor& document_start, const AttentionShape& s);
/// True if cuDNN is used for this attention.
bool cudnn_fits(const Tensor& q, const Tensor& document_start, const AttentionShape& s);

/// The sizes of a block of scores. The distances in elements from one row of an operand to the next, and in
/// rows from one sequence to the next: of q, of k and v, and of out and lse.
struct CudnnAttentionShape {
    int64_t batch, queries, keys, heads, kv_heads, head_dim;
    int64_t q_rows, k_rows, out_rows;
    int64_t ld_out, ld_q, ld_k, ld_v;
    bool causal;
    auto operator<=>(const CudnnAttentionShape&) const = default;
};

/// The graph of out = softmax(scale q k^T) v and of lse, with a causal mask or none.
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
    bool causal_;
};

/// The part of a batch whose gradients are computed together: so many sequences, and so many key/value heads
/// with their query heads. All parts have this size.
struct CudnnBackwardPart {
    int64_t batch, heads, kv_heads;
    bool operator==(const CudnnBackwardPart&) const = default;
};

/// The memory that the gradients of a part need, in bytes, for all blocks of scores.
struct CudnnBackwardBytes {
    int64_t delta;       ///< float32, one for each query and head
    int64_t sums;        ///< float32 sums of dq; 0 if the kernel is deterministic
    int64_t dq, dk, dv;  ///< of each block: added later, and cuDNN cannot write over q, k and v
    int64_t library;     ///< the most that cuDNN's kernels ask for
    int64_t total() const;
};
/// Requires score_blocks(s).
CudnnBackwardBytes backward_bytes(const CudnnBackwardPart& part, const AttentionShape& s, bool deterministic);

/// The part that cuDNN computes at once: no larger than needed to keep a GPU busy, and with a workspace of at
/// most processor.cudnn_bytes. Returns nothing without such a part: then our own kernels compute.
std::optional<CudnnBackwardPart> backward_part(const Processor& processor, const AttentionShape& s);

/// True if cuDNN is used for these gradients: as cudnn_fits, more than one token, a width that cuDNN's
/// backward knows, and a part that fits into the workspace. The gradients may have any type.
bool cudnn_backward_fits(const Processor& processor, const Tensor& q, const Tensor& document_start,
                         const AttentionShape& s);

/// The sizes of a part of a block of scores, as in CudnnAttentionShape; `tokens`: those of the whole batch,
/// which are between the statistics of two heads.
struct CudnnBackwardShape {
    int64_t batch, queries, keys, heads, kv_heads, head_dim;
    int64_t q_rows, k_rows, tokens;
    int64_t ld_dout, ld_out, ld_q, ld_k, ld_v;
    bool causal, deterministic;
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
    bool causal_, deterministic_;
};

/// Why this version of cuDNN should not compute the backward of so many tokens, queries or keys; empty: it
/// may.
std::string wrong_version_for_backward(size_t version, int64_t tokens);

}  // namespace coeus::cuda
