// SPDX-License-Identifier: Apache-2.0
#include "cudnn_attention.hpp"

#include "../attention/score_blocks.hpp"

#include <algorithm>
#include <limits>

namespace coeus::cuda {

using cudnn::DataType;
using cudnn::Pointwise;
using cudnn::Reduction;

namespace {

constexpr int64_t widest_head = 256;
/// Tokens whose statistics fill 32 bytes, so that blocks of scores begin where cuDNN can read.
constexpr int64_t piece = 8;

enum class Obstacle : uint8_t { none, type, documents, windows, widths, blocks, pieces };

bool lies_in_pieces(const ScoreBlock& block) {
    return block.first_query % piece == 0 && block.queries % piece == 0 && block.first_key % piece == 0 &&
           block.keys % piece == 0;
}

Obstacle obstacle_of(const Tensor& q, const Tensor& document_start, const AttentionShape& s) {
    if (q.dtype != Dtype::bf16) return Obstacle::type;
    if (document_start) return Obstacle::documents;
    if (hides_early_keys(s, false)) return Obstacle::windows;
    if (s.value_width() != s.head_dim || s.head_dim % 8 != 0 || s.head_dim > widest_head)
        return Obstacle::widths;
    const std::optional<ScoreBlocks> blocks = score_blocks(s);
    if (!blocks) return Obstacle::blocks;
    const bool fits = is_whole(*blocks, s) || std::all_of(blocks->begin(), blocks->end(), lies_in_pieces);
    return fits ? Obstacle::none : Obstacle::pieces;
}

}  // namespace

bool cudnn_fits(const Tensor& q, const Tensor& document_start, const AttentionShape& s) {
    return obstacle_of(q, document_start, s) == Obstacle::none;
}

std::string why_not_cudnn(const Tensor& q, const Tensor& document_start, const AttentionShape& s) {
    switch (obstacle_of(q, document_start, s)) {
        case Obstacle::none: return "";
        case Obstacle::type:
            return fmt::format("cuDNN is used for bfloat16 only, and attention is in {}", name_of(q.dtype));
        case Obstacle::documents: return "cuDNN is not used with document masks";
        case Obstacle::windows: return "cuDNN is not used with windows or chunks of keys";
        case Obstacle::widths:
            return fmt::format(
                "cuDNN is used for heads whose keys and values have the same width, a multiple of 8 up to "
                "{}; "
                "these have {} and {}",
                widest_head, s.head_dim, s.value_width());
        case Obstacle::blocks:
            return "cuDNN is used for runs of tokens that see all keys of a run or none, besides their own";
        case Obstacle::pieces:
            if (!s.causal)
                return fmt::format(
                    "cuDNN is used for full attention if the numbers of queries and keys are multiples of "
                    "{}; "
                    "these are {} and {}",
                    piece, s.sequence, s.keys().count);
            return fmt::format(
                "cuDNN is used for divided sequences if the runs of tokens of each context-parallel rank are "
                "multiples of {}; a rank has {} tokens in {}",
                piece, s.sequence, s.queries().gap > 0 || s.keys().gap > 0 ? "two runs" : "one run");
    }
    throw LogicError("unknown obstacle to cuDNN");
}

CudnnAttentionGraph::CudnnAttentionGraph(const CudnnLibrary& library, void* handle,
                                         const CudnnAttentionShape& shape)
    : CudnnGraph(library) {
    const int64_t b = shape.batch, n = shape.queries, m = shape.keys, h = shape.heads, kv = shape.kv_heads,
                  d = shape.head_dim, ld_q = shape.ld_q, ld_k = shape.ld_k, ld_v = shape.ld_v,
                  ld_out = shape.ld_out, q_rows = shape.q_rows, k_rows = shape.k_rows,
                  out_rows = shape.out_rows;
    const DataType f32 = DataType::float32, bf16 = DataType::bfloat16;
    const Dimensions block = {b, h, n, m}, row_values = {b, h, n, 1};
    const auto scores = [&, this](DataType type) -> const CudnnDescriptor& { return inside(type, block); };
    const CudnnDescriptor &queries = tensor(q, bf16, {b, h, n, d}, {q_rows * ld_q, d, ld_q, 1}),
                          &keys = tensor(k, bf16, {b, kv, d, m}, {k_rows * ld_k, d, 1, ld_k}),  // transposed
                              &values = tensor(v, bf16, {b, kv, m, d}, {k_rows * ld_v, d, ld_v, 1}),
                          &result = tensor(out, bf16, {b, h, n, d}, {out_rows * ld_out, d, ld_out, 1}),
                          &statistics = tensor(lse, f32, row_values, {out_rows, b * out_rows, 1, 1}),
                          &factor = number(scale);
    const CudnnDescriptor& products = multiply(queries, keys, scores(f32));
    const CudnnDescriptor& scaled = pointwise(Pointwise::multiply, f32, scores(f32), products, &factor);
    const CudnnDescriptor& seen = shape.causal ? lower_triangle(scaled, block, number(hidden)) : scaled;
    const CudnnDescriptor& largest = reduce(Reduction::max, seen, inside(f32, row_values));
    const CudnnDescriptor& below = pointwise(Pointwise::subtract, f32, scores(f32), seen, &largest);
    const CudnnDescriptor& weights = pointwise(Pointwise::exp, f32, scores(f32), below);
    const CudnnDescriptor& sum = reduce(Reduction::add, weights, inside(f32, row_values));
    const CudnnDescriptor& log_of_sum = pointwise(Pointwise::log, f32, inside(f32, row_values), sum);
    pointwise(Pointwise::add, f32, statistics, largest, &log_of_sum);
    const CudnnDescriptor& shares = pointwise(Pointwise::divide, f32, scores(bf16), weights, &sum);
    multiply(shares, values, result);
    finish(handle);
}

CudnnAttention::CudnnAttention(const CudnnLibrary& library, void* handle, const CudnnAttentionShape& shape,
                               int64_t most_workspace)
    : graph_(library, handle, shape),
      plan_(library, handle, graph_, true, most_workspace),
      causal_(shape.causal) {}

void CudnnAttention::run(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                         const Tensor& v, double scale, const Tensor& workspace) const {
    using Id = CudnnAttentionGraph::Id;
    float factor = float(scale), hidden = -std::numeric_limits<float>::infinity();
    std::vector<CudnnPlan::Operand> operands = {{Id::q, q.data},     {Id::k, k.data},
                                                {Id::v, v.data},     {Id::out, out.data},
                                                {Id::lse, lse.data}, {Id::scale, &factor}};
    if (causal_) operands.push_back({Id::hidden, &hidden});
    plan_.run(operands, workspace.data);
}

}  // namespace coeus::cuda
