// SPDX-License-Identifier: Apache-2.0
// Scratch memory of the CUDA kernels in bytes, as pure functions of the shapes. The kernels allocate exactly
// this much from Exec's workspace, and the table for planning runs notes it, on machines without a GPU too.
#pragma once

#include "attention/score_blocks.hpp"
#include "coeus/kernels/kernels.hpp"
#include "libraries/cudnn_attention.hpp"
#include "products/scaled_product.hpp"

#include <algorithm>

namespace coeus::cuda::workspace {

/// Kernels::thin_rows: as on the CPU, so that the same commands work. cuBLASLt does not promise that the bits
/// of a row are independent of the others.
constexpr int64_t thin_rows = 16;
/// Kernels::row_multiple: lines of 128 bytes in bfloat16.
constexpr int64_t row_multiple = 64;
/// Kernels::most_row_bytes: a block keeps the row in shared memory, of which it has 48 KiB with what its sums
/// need. With more, fewer blocks would share a multiprocessor.
constexpr int64_t most_row_bytes = (48 << 10) - 256;
/// Rows (tokens) whose gradients a block sums (column_sums.hpp).
constexpr int64_t column_block = 16;
/// How many of the blocks' sums a thread adds in the first of two levels, so that there are threads for all
/// multiprocessors.
constexpr int64_t partial_group = 32;
/// Elements that a block adds for a sum.
constexpr int64_t sum_block = 1 << 14;
/// Workspace that cuBLASLt may use (NVIDIA's recommendation for Hopper).
constexpr int64_t cublaslt = int64_t(32) << 20;
inline int64_t gemm(const Tensor& d, const Tensor& a) {
    return d.count() > 0 && a.count() > 0 ? cublaslt : 0;
}
/// Operands of scaled_gemm in the forms in which cuBLASLt takes them: decoded, or transposed, with scales.
inline int64_t scaled_gemm(const Exec& exec, const Tensor& d, const Operand& a, const Operand& b,
                           const Tensor& c) {
    const int64_t m = d.rows(), n = d.cols(), depth = depth_of(a);
    if (d.count() == 0 || depth == 0) return 0;
    const ScaledProduct product = scaled_product(exec, d, a, b, c);
    int64_t bytes = cublaslt;
    const auto add = [&](bool is_needed, int64_t more) { bytes += is_needed ? padded_bytes(more) : 0; };
    const bool decodes = product.by == ScaledBy::decoding, vectors = product.by == ScaledBy::vectors,
               blocks = product.by == ScaledBy::blocks;
    add(decodes, m * depth * size_of(Dtype::bf16));
    add(decodes, n * depth * size_of(Dtype::bf16));
    add(decodes, 2 * size_of(Dtype::f32));
    add(product.copies_a, m * depth);
    add(product.copies_b, n * depth);
    add(vectors && needs_vector(a.tensor), m * size_of(Dtype::f32));
    add(vectors && needs_vector(b.tensor), n * size_of(Dtype::f32));
    add(blocks, laid_out_scales(m, depth));
    add(blocks, laid_out_scales(n, depth));
    return bytes;
}
/// Decoded operands, if codes are not multiplied.
inline int64_t scaled_grouped_gemm(const Exec& exec, const Tensor& d, const Tensor& a, const Tensor& b) {
    if (multiplies_codes(exec, d, {a, b})) return 0;
    return padded_bytes(a.count() * size_of(Dtype::bf16)) + padded_bytes(b.count() * size_of(Dtype::bf16));
}

/// Sums of a gradient, which may be absent, for each block of rows.
inline int64_t column_sums(const Tensor& gradient, int64_t rows, int64_t block = column_block) {
    return gradient ? padded_bytes(div_ceil(rows, block) * gradient.count() * size_of(Dtype::f32)) : 0;
}
/// Whether the blocks' sums are added in two levels.
inline bool adds_in_two_levels(int64_t rows, int64_t block = column_block) {
    return div_ceil(rows, block) > partial_group;
}
/// Rows whose gradients a block of norms sums: so many that there are at most 256 such blocks, or more for
/// narrow rows, on every GPU. So the bits depend on the sizes alone.
inline int64_t norm_block(int64_t rows, int64_t width) {
    const int64_t most = std::clamp<int64_t>((int64_t(1) << 20) / std::max<int64_t>(width, 1), 256, 1024);
    return std::max(column_block, div_ceil(rows, most));
}
/// Rows of a sequence whose gradients a block of modulation sums, and how many such blocks a sequence of n
/// rows has.
constexpr int64_t modulate_block = 32;
inline int64_t blocks_of_sequence(const SequenceRows& rows, int64_t n) {
    return div_ceil(std::min(rows.length, n), modulate_block);
}
/// Sums for each of these blocks: one, or two with those of the shift.
inline int64_t modulate_backward(const Tensor& dshift, const Tensor& dscale, const SequenceRows& rows,
                                 int64_t n) {
    return padded_bytes(blocks_of_sequence(rows, n) * dscale.count() * (dshift ? 2 : 1) *
                        size_of(Dtype::f32));
}
/// A batch's tokens and their rows, sorted by row, and the room between two passes of the sort.
inline int64_t sorted_tokens(const Tensor& tokens) {
    return 2 * padded_bytes(tokens.count() * size_of(Dtype::i64));
}
/// One double for each block.
inline int64_t sum(const Tensor& a) {
    return padded_bytes((a.dense() ? div_ceil(a.count(), sum_block) : a.rows()) * size_of(Dtype::f64));
}
/// Workspace that a cuDNN kernel may use for attention.
constexpr int64_t cudnn = 4096;
/// True if cuDNN writes the result of attention where it belongs: there is one block of scores, with all
/// queries, and the result is in cuDNN's type. (What is merged is not.)
inline bool is_written_at_once(const Tensor& out, const AttentionShape& s) {
    const std::optional<ScoreBlocks> blocks = score_blocks(s);
    return out.dtype == Dtype::bf16 && blocks && blocks->size() == 1 &&
           blocks->begin()->queries == s.sequence;
}
/// What our own kernels need: if they merge, a result and its statistics.
inline int64_t own_attention(const AttentionShape& s, bool merge) {
    if (!merge) return 0;
    const int64_t pairs = s.batch * s.sequence * s.heads, f32 = size_of(Dtype::f32);
    return padded_bytes(pairs * s.value_width() * f32) + padded_bytes(pairs * f32);
}
/// What cuDNN needs, or our own kernels: cuDNN's workspace, and results of blocks that are merged.
inline int64_t attention(const Processor& processor, const Tensor& out, const Tensor& q,
                         const Tensor& document_start, const AttentionShape& s, bool merge) {
    const int64_t own = own_attention(s, merge);
    if (processor.cudnn_bytes == 0 || !cudnn_fits(q, document_start, s)) return own;
    int64_t bytes = cudnn;
    if (!is_written_at_once(out, s))
        for (const ScoreBlock& block : blocks_of(s)) {
            const int64_t pairs = s.batch * block.queries * s.heads;
            bytes += padded_bytes(pairs * s.head_dim * size_of(Dtype::bf16)) +
                     padded_bytes(pairs * size_of(Dtype::f32));
        }
    return std::max(own, bytes);
}
/// Our own kernels: row sums of dout out, and the gradients of the queries, which are kept here until the
/// queries are no longer needed.
inline int64_t own_attention_backward(const Tensor& dq, const AttentionShape& s, bool add_to_dq) {
    return padded_bytes(s.heads * s.batch * s.sequence * size_of(Dtype::f32)) +
           (add_to_dq ? 0 : padded_bytes(dq.count() * size_of(dq.dtype)));
}
/// What cuDNN needs, or our own kernels, which compute the gradients if cuDNN cannot.
inline int64_t attention_backward(const Processor& processor, const Tensor& dq, const Tensor& q,
                                  const Tensor& document_start, const AttentionShape& s, bool add_to_dq) {
    const int64_t own = own_attention_backward(dq, s, add_to_dq);
    if (!cudnn_backward_fits(processor, q, document_start, s)) return own;
    const CudnnBackwardPart part = *backward_part(processor, s);
    return std::max(own, backward_bytes(part, s, processor.deterministic).total());
}

}  // namespace coeus::cuda::workspace
