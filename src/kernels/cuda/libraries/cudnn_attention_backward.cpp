// SPDX-License-Identifier: Apache-2.0
#include "../attention/score_blocks.hpp"
#include "coeus/base/error.hpp"
#include "cudnn_attention.hpp"

#include <algorithm>
#include <limits>

namespace coeus::cuda {

using cudnn::DataType;
using cudnn::Pointwise;
using cudnn::Reduction;

namespace {

constexpr int64_t tile = 128;           // rows of queries or keys that a block of cuDNN's kernels computes
constexpr int64_t enough_blocks = 512;  // four for each processor of an H100, whose costs differ
constexpr int64_t small_change = 4096;  // workspace besides the matrices; plans of 9.19 have 0 to 256 bytes

std::vector<int64_t> divisors_of(int64_t n) {
    std::vector<int64_t> all;
    for (int64_t i = 1; i <= n; ++i)
        if (n % i == 0) all.push_back(i);
    return all;
}

}  // namespace

int64_t CudnnBackwardBytes::total() const {
    return padded_bytes(delta) + padded_bytes(sums) + padded_bytes(dq) + padded_bytes(dk) + padded_bytes(dv) +
           padded_bytes(library);
}

// The plans of cuDNN 9.19 for sm_80, sm_90 and sm_100 need at most: dS in bfloat16 if the kernel is
// deterministic, else on sm_80 a second matrix of float32 sums of dq; dk and dv of all query heads in
// bfloat16 if these share keys.
CudnnBackwardBytes backward_bytes(const CudnnBackwardPart& part, const AttentionShape& s,
                                  bool deterministic) {
    const int64_t f32 = size_of(Dtype::f32), bf16 = size_of(Dtype::bf16), d = s.head_dim,
                  pairs = part.batch * part.heads, kv_pairs = part.batch * part.kv_heads;
    CudnnBackwardBytes bytes = {};
    for (const ScoreBlock& block : blocks_of(s)) {
        const int64_t queries = pairs * block.queries, keys = kv_pairs * block.keys,
                      query_rows = round_up(block.queries, tile), key_rows = round_up(block.keys, tile);
        bytes.delta = std::max(bytes.delta, queries * f32);
        if (!deterministic) bytes.sums = std::max(bytes.sums, queries * d * f32);
        bytes.dq += padded_bytes(queries * d * bf16);
        bytes.dk += padded_bytes(keys * d * bf16);
        bytes.dv += padded_bytes(keys * d * bf16);
        bytes.library =
            std::max(bytes.library, pairs * query_rows * (deterministic ? key_rows * bf16 : d * f32) +
                                        (part.heads == part.kv_heads ? 0 : 2 * pairs * key_rows * d * bf16) +
                                        small_change);
    }
    return bytes;
}

std::optional<CudnnBackwardPart> backward_part(const Processor& processor, const AttentionShape& s) {
    const int64_t group = s.heads / s.kv_heads;
    std::vector<CudnnBackwardPart> parts;  // in ascending order
    for (const int64_t kv_heads : divisors_of(s.kv_heads)) parts.push_back({1, group * kv_heads, kv_heads});
    for (const int64_t batch : divisors_of(s.batch))
        if (batch > 1) parts.push_back({batch, s.heads, s.kv_heads});
    // the statistics of a part must begin at a multiple of 16 bytes
    if (s.sequence % 4 != 0) parts = {parts.back()};
    int64_t rows = s.sequence;
    for (const ScoreBlock& block : blocks_of(s)) rows = std::min(rows, block.queries);
    std::optional<CudnnBackwardPart> best;
    for (const CudnnBackwardPart& part : parts) {
        if (backward_bytes(part, s, processor.deterministic).total() > processor.cudnn_bytes) break;
        best = part;
        if (part.batch * part.heads * div_ceil(rows, tile) >= enough_blocks) break;
    }
    return best;
}

bool cudnn_backward_fits(const Processor& processor, const Tensor& q, const Tensor& document_start,
                         const AttentionShape& s) {
    constexpr int hopper = 90, any = 0;
    const int64_t widest = processor.architecture == hopper || processor.architecture == any ? 256 : 128;
    return processor.cudnn_bytes > 0 && cudnn_fits(q, document_start, s) && s.sequence > 1 &&
           s.head_dim <= widest && backward_part(processor, s);
}

CudnnBackwardGraph::CudnnBackwardGraph(const CudnnLibrary& library, void* handle,
                                       const CudnnBackwardShape& shape)
    : CudnnGraph(library) {
    const int64_t b = shape.batch, n = shape.queries, m = shape.keys, h = shape.heads, kv = shape.kv_heads,
                  d = shape.head_dim, ld_k = shape.ld_k, ld_v = shape.ld_v, q_rows = shape.q_rows,
                  k_rows = shape.k_rows;
    const DataType f32 = DataType::float32, bf16 = DataType::bfloat16;
    const Dimensions of_queries = {b, h, n, d}, of_keys = {b, kv, m, d}, of_heads = {b, h, m, d},
                     transposed = {b, kv, d, m}, block = {b, h, n, m}, row_values = {b, h, n, 1};
    const auto scores = [&, this](DataType type) -> const CudnnDescriptor& { return inside(type, block); };
    const auto transpose = [&, this](const CudnnDescriptor& x) -> const CudnnDescriptor& {
        return reshape(x, inside(bf16, {b, h, m, n}, {h * n * m, n * m, 1, m}));
    };
    const auto rows = [&, this](Id id, const Dimensions& dimensions, int64_t of_sequence,
                                int64_t ld) -> const CudnnDescriptor& {
        return tensor(id, bf16, dimensions, {of_sequence * ld, d, ld, 1});
    };
    const CudnnDescriptor &queries = rows(q, of_queries, q_rows, shape.ld_q),
                          &keys = tensor(k, bf16, transposed, {k_rows * ld_k, d, 1, ld_k}),
                          &values = tensor(v, bf16, transposed, {k_rows * ld_v, d, 1, ld_v}),
                          &result = rows(out, of_queries, q_rows, shape.ld_out),
                          &gradient = rows(dout, of_queries, q_rows, shape.ld_dout),
                          &statistics = tensor(lse, f32, row_values, {q_rows, shape.tokens, 1, 1}),
                          &to_queries = rows(dq, of_queries, n, h * d),
                          &to_keys = rows(dk, of_keys, m, kv * d), &to_values = rows(dv, of_keys, m, kv * d),
                          &deltas = tensor(delta, f32, row_values, {h * n, n, 1, 1}), &factor = number(scale),
                          &unit = number(one);
    // the product of scores^T and rows, summed over the query heads that share a key
    const auto sum_rows = [&, this](const CudnnDescriptor& weights, const CudnnDescriptor& of,
                                    const CudnnDescriptor& to) {
        if (h == kv) return void(multiply(weights, of, to));
        reduce(Reduction::add, multiply(weights, of, inside(bf16, of_heads)), to);
    };

    const CudnnDescriptor& matches =
        pointwise(Pointwise::multiply, f32, inside(f32, of_queries), gradient, &result);
    const CudnnDescriptor& sum = reduce(Reduction::add, matches, inside(f32, row_values));
    pointwise(Pointwise::multiply, f32, deltas, sum, &unit);

    const CudnnDescriptor& products = multiply(queries, keys, scores(f32));
    const CudnnDescriptor& scaled = pointwise(Pointwise::multiply, f32, scores(f32), products, &factor);
    const CudnnDescriptor& below = pointwise(Pointwise::subtract, f32, scores(f32), scaled, &statistics);
    const CudnnDescriptor& seen = shape.causal ? lower_triangle(below, block, number(hidden)) : below;
    const CudnnDescriptor& weights = pointwise(Pointwise::exp, f32, scores(f32), seen);
    sum_rows(transpose(weights), gradient, to_values);

    const CudnnDescriptor& dweights = multiply(gradient, values, scores(f32));
    const CudnnDescriptor& differences = pointwise(Pointwise::subtract, f32, scores(f32), dweights, &deltas);
    const CudnnDescriptor& unscaled = pointwise(Pointwise::multiply, f32, scores(f32), differences, &weights);
    const CudnnDescriptor& dscores = pointwise(Pointwise::multiply, f32, scores(f32), unscaled, &factor);
    sum_rows(transpose(dscores), queries, to_keys);

    const CudnnDescriptor& key_rows = reshape(keys, inside(bf16, of_keys, {k_rows * ld_k, d, ld_k, 1}));
    if (shape.deterministic) {
        multiply(dscores, key_rows, to_queries);
    } else {
        const CudnnDescriptor& added = tensor(sums, f32, of_queries, {h * n * d, n * d, d, 1});
        multiply(dscores, key_rows, added);
        pointwise(Pointwise::identity, f32, to_queries, added);
    }
    finish(handle);
}

std::string wrong_version_for_backward(size_t version, int64_t tokens) {
    // 9.6: sums need not be cleared. cuDNN's frontend refuses 9.10.0 and 9.10.1 and works around an error of
    // 9.15.0 and older.
    if (version < 90600) return "the backward needs cuDNN 9.6 or newer";
    if (version == 91000 || version == 91001) return "the backward of cuDNN 9.10.0 and 9.10.1 has errors";
    if (version <= 91500 && tokens % tile != 0)
        return fmt::format(
            "the backward of {} tokens, which are not a multiple of {}, needs cuDNN 9.15.1 or "
            "newer",
            tokens, tile);
    return "";
}

CudnnBackward::CudnnBackward(const CudnnLibrary& library, void* handle, const CudnnBackwardShape& shape,
                             int64_t most_workspace)
    : graph_(library, handle, shape),
      plan_(library, handle, graph_, shape.deterministic, most_workspace),
      causal_(shape.causal),
      deterministic_(shape.deterministic) {}

void CudnnBackward::run(const Operands& o, double scale, const Tensor& workspace) const {
    using Id = CudnnBackwardGraph::Id;
    float factor = float(scale), one = 1, hidden = -std::numeric_limits<float>::infinity();
    std::vector<CudnnPlan::Operand> operands = {
        {Id::dq, o.dq.data},   {Id::dk, o.dk.data},       {Id::dv, o.dv.data},  {Id::dout, o.dout.data},
        {Id::out, o.out.data}, {Id::lse, o.lse.data},     {Id::q, o.q.data},    {Id::k, o.k.data},
        {Id::v, o.v.data},     {Id::delta, o.delta.data}, {Id::scale, &factor}, {Id::one, &one}};
    if (causal_) operands.push_back({Id::hidden, &hidden});
    if (!deterministic_) operands.push_back({Id::sums, o.sums.data});
    plan_.run(operands, workspace.data);
}

}  // namespace coeus::cuda
