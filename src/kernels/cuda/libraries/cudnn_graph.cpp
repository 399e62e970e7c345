// SPDX-License-Identifier: Apache-2.0
#include "cudnn_graph.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>

namespace coeus::cuda {

using cudnn::Attribute;
using cudnn::DataType;
using cudnn::Kind;
using cudnn::Type;

namespace {

constexpr int64_t alignment = 16;  // of tensors, in bytes

}  // namespace

const CudnnDescriptor& CudnnGraph::keep(CudnnDescriptor descriptor) {
    descriptor.finalize();
    return *parts_.emplace_back(std::make_unique<CudnnDescriptor>(std::move(descriptor)));
}

const CudnnDescriptor& CudnnGraph::tensor(int64_t id, DataType type, const Dimensions& dimensions,
                                          const Dimensions& strides, bool is_by_value) {
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

const CudnnDescriptor& CudnnGraph::multiply(const CudnnDescriptor& a, const CudnnDescriptor& b,
                                            const CudnnDescriptor& c) {
    CudnnDescriptor matmul(library_, Kind::matmul);
    matmul.set<DataType>(Attribute::matmul_precision, Type::data_type, {DataType::float32});
    CudnnDescriptor operation(library_, Kind::operation_matmul);
    operation.set(Attribute::operation_matmul_descriptor, keep(std::move(matmul)))
        .set(Attribute::operation_matmul_a, a)
        .set(Attribute::operation_matmul_b, b)
        .set(Attribute::operation_matmul_c, c);
    add(std::move(operation));
    return c;
}

const CudnnDescriptor& CudnnGraph::reduce(cudnn::Reduction op, const CudnnDescriptor& x,
                                          const CudnnDescriptor& y) {
    CudnnDescriptor reduction(library_, Kind::reduction);
    reduction.set<cudnn::Reduction>(Attribute::reduction_operator, Type::reduction_operator, {op})
        .set<DataType>(Attribute::reduction_precision, Type::data_type, {DataType::float32});
    CudnnDescriptor operation(library_, Kind::operation_reduction);
    operation.set(Attribute::operation_reduction_descriptor, keep(std::move(reduction)))
        .set(Attribute::operation_reduction_x, x)
        .set(Attribute::operation_reduction_y, y);
    add(std::move(operation));
    return y;
}

const CudnnDescriptor& CudnnGraph::pointwise(cudnn::Pointwise mode, DataType precision,
                                             const CudnnDescriptor& y, const CudnnDescriptor& x,
                                             const CudnnDescriptor* b, const CudnnDescriptor* t) {
    CudnnDescriptor function(library_, Kind::pointwise);
    function.set<cudnn::Pointwise>(Attribute::pointwise_mode, Type::pointwise_mode, {mode})
        .set<DataType>(Attribute::pointwise_precision, Type::data_type, {precision});
    CudnnDescriptor operation(library_, Kind::operation_pointwise);
    operation.set(Attribute::operation_pointwise_descriptor, keep(std::move(function)))
        .set(Attribute::operation_pointwise_x, x)
        .set(Attribute::operation_pointwise_y, y);
    if (b) operation.set(Attribute::operation_pointwise_b, *b);
    if (t) operation.set(Attribute::operation_pointwise_t, *t);
    add(std::move(operation));
    return y;
}

const CudnnDescriptor& CudnnGraph::index(const CudnnDescriptor& x, int64_t axis, const CudnnDescriptor& y) {
    CudnnDescriptor function(library_, Kind::pointwise);
    function.set<cudnn::Pointwise>(Attribute::pointwise_mode, Type::pointwise_mode, {cudnn::Pointwise::index})
        .set<DataType>(Attribute::pointwise_precision, Type::data_type, {DataType::int32})
        .set<int64_t>(Attribute::pointwise_axis, Type::int64, {axis});
    CudnnDescriptor operation(library_, Kind::operation_pointwise);
    operation.set(Attribute::operation_pointwise_descriptor, keep(std::move(function)))
        .set(Attribute::operation_pointwise_x, x)
        .set(Attribute::operation_pointwise_y, y);
    add(std::move(operation));
    return y;
}

const CudnnDescriptor& CudnnGraph::lower_triangle(const CudnnDescriptor& x, const Dimensions& dimensions,
                                                  const CudnnDescriptor& otherwise) {
    using cudnn::Pointwise;
    const CudnnDescriptor &row = index(x, 2, inside(DataType::int32, dimensions)),
                          &column = index(x, 3, inside(DataType::int32, dimensions));
    const CudnnDescriptor& is_below = pointwise(Pointwise::not_less, DataType::boolean,
                                                inside(DataType::boolean, dimensions), row, &column);
    return pointwise(Pointwise::select, DataType::float32, inside(DataType::float32, dimensions), x,
                     &otherwise, &is_below);
}

const CudnnDescriptor& CudnnGraph::reshape(const CudnnDescriptor& x, const CudnnDescriptor& y) {
    CudnnDescriptor operation(library_, Kind::operation_reshape);
    operation.set(Attribute::operation_reshape_x, x).set(Attribute::operation_reshape_y, y);
    add(std::move(operation));
    return y;
}

void CudnnGraph::finish(void* handle) {
    graph_ = std::make_unique<CudnnDescriptor>(library_, Kind::graph);
    if (handle) graph_->set<void*>(Attribute::graph_handle, Type::handle, {handle});
    graph_->set(Attribute::graph_operations, Type::descriptor, operations_);
    graph_->finalize();
}

std::vector<CudnnDescriptor> CudnnGraph::configurations(const CudnnDescriptor* device_properties) const {
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

CudnnEngine engine_of(const CudnnLibrary& library, const CudnnDescriptor& configuration) {
    constexpr int64_t most_notes = 32;
    const auto get = [&](const CudnnDescriptor& of, Attribute name, Type type, int64_t most, void* values) {
        int64_t count = 0;
        library.check(library.get_attribute(of.get(), name, type, most, &count, values),
                      "cudnnBackendGetAttribute");
        return std::min(count, most);
    };
    const CudnnDescriptor engine(library, Kind::engine);
    void* to = engine.get();
    get(configuration, Attribute::engine_config_engine, Type::descriptor, 1, &to);
    CudnnEngine found;
    found.notes.resize(most_notes);
    found.notes.resize(
        size_t(get(engine, Attribute::engine_notes, Type::note, most_notes, found.notes.data())));
    get(engine, Attribute::engine_number, Type::int64, 1, &found.number);
    return found;
}

bool CudnnEngine::is_deterministic() const {
    return std::find(notes.begin(), notes.end(), cudnn::Note::nondeterministic) == notes.end();
}

std::string CudnnEngine::text() const {
    std::string text = fmt::format("engine {}, notes", number);
    for (const cudnn::Note note : notes) text += fmt::format(" {}", int(note));
    return notes.empty() ? text + " none" : text;
}

CudnnPlan::CudnnPlan(const CudnnLibrary& library, void* handle, const CudnnGraph& graph, bool deterministic,
                     int64_t most_workspace)
    : library_(library), handle_(handle) {
    std::string why;
    const auto note = [&](const std::string& reason) {
        if (why.find(reason) == std::string::npos) why += (why.empty() ? "" : "; ") + reason;
    };
    for (const CudnnDescriptor& configuration : graph.configurations(nullptr)) try {
            const CudnnEngine engine = engine_of(library, configuration);
            if (deterministic && !engine.is_deterministic()) continue;
            auto plan = std::make_unique<CudnnDescriptor>(library, Kind::plan);
            plan->set<void*>(Attribute::plan_handle, Type::handle, {handle})
                .set(Attribute::plan_engine_config, configuration);
            plan->finalize();
            int64_t count = 0;
            library.check(library.get_attribute(plan->get(), Attribute::plan_workspace, Type::int64, 1,
                                                &count, &workspace_),
                          "cudnnBackendGetAttribute");
            if (workspace_ <= most_workspace) {
                plan_ = std::move(plan);
                text_ = fmt::format("{}, {} bytes of workspace", engine.text(), workspace_);
                return;
            }
            note(fmt::format("it needs {} bytes of workspace, more than the planned {}", workspace_,
                             most_workspace));
        } catch (const SystemError& error) {
            note(error.what());
        }
    if (why.empty())
        why = deterministic ? "it has no deterministic kernel for it" : "it has no kernel for it";
    throw SystemError(why);
}

void CudnnPlan::run(const std::vector<Operand>& operands, void* workspace) const {
    std::vector<int64_t> ids;
    std::vector<void*> pointers;
    for (const Operand& operand : operands) {
        ids.push_back(operand.id);
        pointers.push_back(operand.data);
    }
    CudnnDescriptor pack(library_, Kind::variant_pack);
    pack.set(Attribute::variant_pack_ids, Type::int64, ids)
        .set(Attribute::variant_pack_pointers, Type::pointer, pointers)
        .set<void*>(Attribute::variant_pack_workspace, Type::pointer, {workspace});
    pack.finalize();
    library_.check(library_.execute(handle_, plan_->get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace coeus::cuda
