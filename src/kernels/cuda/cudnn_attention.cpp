// SPDX-License-Identifier: Apache-2.0
#include "cudnn_attention.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace coeus::cuda {

using cudnn::Attribute;
using cudnn::DataType;
using cudnn::Kind;
using cudnn::Pointwise;
using cudnn::Reduction;
using cudnn::Type;

namespace {

constexpr int64_t alignment = 16;  // of operands, in bytes

/// True if the kernel gives the same bits each time.
bool is_deterministic(const CudnnLibrary& library, const CudnnDescriptor& configuration) {
    constexpr int64_t most_notes = 32;
    const CudnnDescriptor engine(library, Kind::engine);
    void* to = engine.get();
    int64_t count = 0;
    library.check(library.get_attribute(configuration.get(), Attribute::engine_config_engine,
                                        Type::descriptor, 1, &count, &to),
                  "cudnnBackendGetAttribute");
    cudnn::Note notes[most_notes] = {};
    library.check(
        library.get_attribute(engine.get(), Attribute::engine_notes, Type::note, most_notes, &count, notes),
        "cudnnBackendGetAttribute");
    return std::find(notes, notes + std::min(count, most_notes), cudnn::Note::nondeterministic) ==
           notes + std::min(count, most_notes);
}

}  // namespace

const CudnnDescriptor& CudnnAttentionGraph::keep(CudnnDescriptor descriptor) {
    descriptor.finalize();
    return *parts_.emplace_back(std::make_unique<CudnnDescriptor>(std::move(descriptor)));
}

const CudnnDescriptor& CudnnAttentionGraph::tensor(int64_t id, DataType type,
                                                   const std::vector<int64_t>& dimensions,
                                                   const std::vector<int64_t>& strides, bool is_by_value) {
    CudnnDescriptor t(library_, Kind::tensor);
    t.set<int64_t>(Attribute::tensor_id, Type::int64, {id})
        .set<DataType>(Attribute::tensor_type, Type::data_type, {type})
        .set(Attribute::tensor_dimensions, Type::int64, dimensions)
        .set(Attribute::tensor_strides, Type::int64, strides)
        .set<int64_t>(Attribute::tensor_alignment, Type::int64, {alignment})
        .set(Attribute::tensor_is_virtual, id >= first_virtual)
        .set(Attribute::tensor_is_by_value, is_by_value);
    return keep(std::move(t));
}

/// A tensor with one number for each query and key.
const CudnnDescriptor& CudnnAttentionGraph::scores(DataType type) {
    const auto [b, h, s] = std::tuple(shape_.batch, shape_.heads, shape_.sequence);
    return tensor(next_id_++, type, {b, h, s, s}, {h * s * s, s * s, s, 1});
}
/// A tensor with one number for each query.
const CudnnDescriptor& CudnnAttentionGraph::row_values() {
    const auto [b, h, s] = std::tuple(shape_.batch, shape_.heads, shape_.sequence);
    return tensor(next_id_++, DataType::float32, {b, h, s, 1}, {h * s, s, 1, 1});
}

const CudnnDescriptor& CudnnAttentionGraph::multiply(const CudnnDescriptor& a, const CudnnDescriptor& b,
                                                     const CudnnDescriptor& c) {
    CudnnDescriptor matmul(library_, Kind::matmul);
    matmul.set<DataType>(Attribute::matmul_precision, Type::data_type, {DataType::float32});
    CudnnDescriptor operation(library_, Kind::operation_matmul);
    operation.set(Attribute::operation_matmul_descriptor, keep(std::move(matmul)))
        .set(Attribute::operation_matmul_a, a)
        .set(Attribute::operation_matmul_b, b)
        .set(Attribute::operation_matmul_c, c);
    operations_.push_back(keep(std::move(operation)).get());
    return c;
}

const CudnnDescriptor& CudnnAttentionGraph::reduce(Reduction op, const CudnnDescriptor& x) {
    CudnnDescriptor reduction(library_, Kind::reduction);
    reduction.set<Reduction>(Attribute::reduction_operator, Type::reduction_operator, {op})
        .set<DataType>(Attribute::reduction_precision, Type::data_type, {DataType::float32});
    const CudnnDescriptor& y = row_values();
    CudnnDescriptor operation(library_, Kind::operation_reduction);
    operation.set(Attribute::operation_reduction_descriptor, keep(std::move(reduction)))
        .set(Attribute::operation_reduction_x, x)
        .set(Attribute::operation_reduction_y, y);
    operations_.push_back(keep(std::move(operation)).get());
    return y;
}

const CudnnDescriptor& CudnnAttentionGraph::pointwise(Pointwise mode, DataType precision,
                                                      const CudnnDescriptor& y, const CudnnDescriptor& x,
                                                      const CudnnDescriptor* b, const CudnnDescriptor* t) {
    CudnnDescriptor function(library_, Kind::pointwise);
    function.set<Pointwise>(Attribute::pointwise_mode, Type::pointwise_mode, {mode})
        .set<DataType>(Attribute::pointwise_precision, Type::data_type, {precision});
    CudnnDescriptor operation(library_, Kind::operation_pointwise);
    operation.set(Attribute::operation_pointwise_descriptor, keep(std::move(function)))
        .set(Attribute::operation_pointwise_x, x)
        .set(Attribute::operation_pointwise_y, y);
    if (b) operation.set(Attribute::operation_pointwise_b, *b);
    if (t) operation.set(Attribute::operation_pointwise_t, *t);
    operations_.push_back(keep(std::move(operation)).get());
    return y;
}

/// A tensor with the number of each query (axis 2) or key (axis 3).
const CudnnDescriptor& CudnnAttentionGraph::index(const CudnnDescriptor& of, int64_t axis) {
    CudnnDescriptor function(library_, Kind::pointwise);
    function.set<Pointwise>(Attribute::pointwise_mode, Type::pointwise_mode, {Pointwise::index})
        .set<DataType>(Attribute::pointwise_precision, Type::data_type, {DataType::int32})
        .set<int64_t>(Attribute::pointwise_axis, Type::int64, {axis});
    const CudnnDescriptor& y = scores(DataType::int32);
    CudnnDescriptor operation(library_, Kind::operation_pointwise);
    operation.set(Attribute::operation_pointwise_descriptor, keep(std::move(function)))
        .set(Attribute::operation_pointwise_x, of)
        .set(Attribute::operation_pointwise_y, y);
    operations_.push_back(keep(std::move(operation)).get());
    return y;
}

CudnnAttentionGraph::CudnnAttentionGraph(const CudnnLibrary& library, void* handle,
                                         const CudnnAttentionShape& shape)
    : library_(library), shape_(shape) {
    const auto [b, s, h, kv, d, ld_out, ld_q, ld_k, ld_v] = shape;
    const DataType f32 = DataType::float32, bf16 = DataType::bfloat16;
    const CudnnDescriptor &queries = tensor(q, bf16, {b, h, s, d}, {s * ld_q, d, ld_q, 1}),
                          &keys = tensor(k, bf16, {b, kv, d, s}, {s * ld_k, d, 1, ld_k}),  // transposed
                              &values = tensor(v, bf16, {b, kv, s, d}, {s * ld_v, d, ld_v, 1}),
                          &result = tensor(out, bf16, {b, h, s, d}, {s * ld_out, d, ld_out, 1}),
                          &statistics = tensor(lse, f32, {b, h, s, 1}, {s, b * s, 1, 1}),
                          &factor = tensor(scale, f32, {1, 1, 1, 1}, {1, 1, 1, 1}, true),
                          &nothing = tensor(hidden, f32, {1, 1, 1, 1}, {1, 1, 1, 1}, true);
    const CudnnDescriptor& products = multiply(queries, keys, scores(f32));
    const CudnnDescriptor& scaled = pointwise(Pointwise::multiply, f32, scores(f32), products, &factor);
    const CudnnDescriptor &query = index(scaled, 2), &key = index(scaled, 3);
    const CudnnDescriptor& is_seen =
        pointwise(Pointwise::not_less, DataType::boolean, scores(DataType::boolean), query, &key);
    const CudnnDescriptor& seen = pointwise(Pointwise::select, f32, scores(f32), scaled, &nothing, &is_seen);
    const CudnnDescriptor& largest = reduce(Reduction::max, seen);
    const CudnnDescriptor& below = pointwise(Pointwise::subtract, f32, scores(f32), seen, &largest);
    const CudnnDescriptor& weights = pointwise(Pointwise::exp, f32, scores(f32), below);
    const CudnnDescriptor& sum = reduce(Reduction::add, weights);
    const CudnnDescriptor& log_of_sum = pointwise(Pointwise::log, f32, row_values(), sum);
    pointwise(Pointwise::add, f32, statistics, largest, &log_of_sum);
    const CudnnDescriptor& shares = pointwise(Pointwise::divide, f32, scores(bf16), weights, &sum);
    multiply(shares, values, result);

    graph_ = std::make_unique<CudnnDescriptor>(library_, Kind::graph);
    if (handle) graph_->set<void*>(Attribute::graph_handle, Type::handle, {handle});
    graph_->set(Attribute::graph_operations, Type::descriptor, operations_);
    graph_->finalize();
}

std::vector<CudnnDescriptor> CudnnAttentionGraph::configurations(
    const CudnnDescriptor* device_properties) const {
    constexpr int64_t most = 8;
    CudnnDescriptor heuristics(library_, Kind::heuristics);
    heuristics.set(Attribute::heuristics_graph, *graph_)
        .set<cudnn::Heuristics>(Attribute::heuristics_mode, Type::heuristics_mode, {cudnn::Heuristics::best});
    if (device_properties) heuristics.set(Attribute::heuristics_device_properties, *device_properties);
    heuristics.finalize();
    std::vector<CudnnDescriptor> results;
    std::vector<void*> to;
    for (int64_t i = 0; i < most; ++i)
        to.push_back(results.emplace_back(library_, Kind::engine_config).get());
    int64_t count = 0;
    library_.check(library_.get_attribute(heuristics.get(), Attribute::heuristics_results, Type::descriptor,
                                          most, &count, to.data()),
                   "cudnnBackendGetAttribute");
    results.erase(results.begin() + std::clamp<int64_t>(count, 0, most), results.end());
    return results;
}

CudnnAttention::CudnnAttention(const CudnnLibrary& library, void* handle, const CudnnAttentionShape& shape,
                               int64_t most_workspace)
    : library_(library), handle_(handle), graph_(library, handle, shape) {
    std::string why = "it has no deterministic kernel for it";
    for (const CudnnDescriptor& configuration : graph_.configurations(nullptr)) try {
            if (!is_deterministic(library, configuration)) continue;
            auto plan = std::make_unique<CudnnDescriptor>(library, Kind::plan);
            plan->set<void*>(Attribute::plan_handle, Type::handle, {handle})
                .set(Attribute::plan_engine_config, configuration);
            plan->finalize();
            int64_t bytes = 0, count = 0;
            library.check(
                library.get_attribute(plan->get(), Attribute::plan_workspace, Type::int64, 1, &count, &bytes),
                "cudnnBackendGetAttribute");
            if (bytes <= most_workspace) {
                plan_ = std::move(plan);
                return;
            }
            why = fmt::format("it needs {} bytes of workspace, more than the planned {}", bytes,
                              most_workspace);
        } catch (const SystemError& error) {
            why = error.what();
        }
    throw SystemError(why);
}

void CudnnAttention::run(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                         const Tensor& v, double scale, const Tensor& workspace) const {
    using Id = CudnnAttentionGraph::Id;
    float factor = float(scale), hidden = -std::numeric_limits<float>::infinity();
    CudnnDescriptor pack(library_, Kind::variant_pack);
    pack.set<int64_t>(Attribute::variant_pack_ids, Type::int64,
                      {Id::q, Id::k, Id::v, Id::out, Id::lse, Id::scale, Id::hidden})
        .set<void*>(Attribute::variant_pack_pointers, Type::pointer,
                    {q.data, k.data, v.data, out.data, lse.data, &factor, &hidden})
        .set<void*>(Attribute::variant_pack_workspace, Type::pointer, {workspace.data});
    pack.finalize();
    library_.check(library_.execute(handle_, plan_->get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace coeus::cuda
