// SPDX-License-Identifier: Apache-2.0
#include "cudnn_attention.hpp"

#include <limits>

namespace coeus::cuda {

using cudnn::DataType;
using cudnn::Pointwise;
using cudnn::Reduction;

CudnnAttentionGraph::CudnnAttentionGraph(const CudnnLibrary& library, void* handle,
                                         const CudnnAttentionShape& shape)
    : CudnnGraph(library) {
    const int64_t b = shape.batch, s = shape.sequence, h = shape.heads, kv = shape.kv_heads,
                  d = shape.head_dim;
    const DataType f32 = DataType::float32, bf16 = DataType::bfloat16;
    const Dimensions square = {b, h, s, s}, row_values = {b, h, s, 1};
    const auto scores = [&, this](DataType type) -> const CudnnDescriptor& { return inside(type, square); };
    const CudnnDescriptor &queries = tensor(q, bf16, {b, h, s, d}, {s * shape.ld_q, d, shape.ld_q, 1}),
                          &keys = tensor(k, bf16, {b, kv, d, s},
                                         {s * shape.ld_k, d, 1, shape.ld_k}),  // transposed
                              &values = tensor(v, bf16, {b, kv, s, d}, {s * shape.ld_v, d, shape.ld_v, 1}),
                          &result = tensor(out, bf16, {b, h, s, d}, {s * shape.ld_out, d, shape.ld_out, 1}),
                          &statistics = tensor(lse, f32, row_values, {s, b * s, 1, 1}),
                          &factor = number(scale), &nothing = number(hidden);
    const CudnnDescriptor& products = multiply(queries, keys, scores(f32));
    const CudnnDescriptor& scaled = pointwise(Pointwise::multiply, f32, scores(f32), products, &factor);
    const CudnnDescriptor &query = index(scaled, 2, scores(DataType::int32)),
                          &key = index(scaled, 3, scores(DataType::int32));
    const CudnnDescriptor& is_seen =
        pointwise(Pointwise::not_less, DataType::boolean, scores(DataType::boolean), query, &key);
    const CudnnDescriptor& seen = pointwise(Pointwise::select, f32, scores(f32), scaled, &nothing, &is_seen);
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
    : graph_(library, handle, shape), plan_(library, handle, graph_, true, most_workspace) {}

void CudnnAttention::run(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                         const Tensor& v, double scale, const Tensor& workspace) const {
    using Id = CudnnAttentionGraph::Id;
    float factor = float(scale), hidden = -std::numeric_limits<float>::infinity();
    plan_.run({{Id::q, q.data},
               {Id::k, k.data},
               {Id::v, v.data},
               {Id::out, out.data},
               {Id::lse, lse.data},
               {Id::scale, &factor},
               {Id::hidden, &hidden}},
              workspace.data);
}

}  // namespace coeus::cuda
