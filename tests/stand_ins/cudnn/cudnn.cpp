// SPDX-License-Identifier: Apache-2.0
// Stands in for cuDNN, whose source is not public. It accepts descriptors as the library does, and runs the
// operations of a graph one after the other on the emulated streams, in float32. COEUS_CUDNN=stand-in loads
// it.
#include "../../../src/kernels/cuda/cudnn.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/types.hpp"
#include "stand_ins/cuda/cuda_runtime.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

using namespace coeus;
using namespace coeus::cuda;
using cudnn::Attribute;
using cudnn::DataType;
using cudnn::Kind;
using cudnn::Pointwise;
using cudnn::Type;

namespace {

struct Handle {
    cudaStream_t stream = nullptr;
};

/// A descriptor: the bytes of its attributes.
struct Item {
    Kind kind;
    bool is_final = false;
    std::map<Attribute, std::vector<char>> attributes = {};

    template <class T>
    std::vector<T> all(Attribute name) const {
        const auto found = attributes.find(name);
        require(found != attributes.end(), "cuDNN: an attribute is missing");
        std::vector<T> values(found->second.size() / sizeof(T));
        std::memcpy(values.data(), found->second.data(), found->second.size());
        return values;
    }
    template <class T>
    T one(Attribute name) const {
        return all<T>(name).at(0);
    }
    const Item& item(Attribute name) const { return *one<const Item*>(name); }
    bool has(Attribute name) const { return attributes.count(name) > 0; }
};

size_t size_of(Type type) {
    switch (type) {
        case Type::boolean:
        case Type::character: return 1;
        case Type::int64:
        case Type::handle:
        case Type::pointer:
        case Type::descriptor: return 8;
        default: return 4;
    }
}

using Index = std::array<int64_t, 4>;

/// A running graph: the values of virtual tensors, and the addresses of the other tensors.
class Run {
public:
    explicit Run(const Item& pack) {
        const auto ids = pack.all<int64_t>(Attribute::variant_pack_ids);
        const auto pointers = pack.all<void*>(Attribute::variant_pack_pointers);
        for (size_t i = 0; i < ids.size(); ++i) pointers_[ids[i]] = pointers.at(i);
    }
    /// Scalars are in host memory, and are read when the graph is given to a stream.
    void take_scalar(const Item& tensor) {
        if (tensor.one<char>(Attribute::tensor_is_by_value) != 0)
            values_[id_of(tensor)] = {*static_cast<const float*>(pointers_.at(id_of(tensor)))};
    }
    void operator()(const Item& operation) {
        if (operation.kind == Kind::operation_matmul) return multiply(operation);
        if (operation.kind == Kind::operation_reduction) return reduce(operation);
        pointwise(operation);
    }

private:
    static int64_t id_of(const Item& tensor) { return tensor.one<int64_t>(Attribute::tensor_id); }
    static Index shape_of(const Item& tensor) {
        const auto dimensions = tensor.all<int64_t>(Attribute::tensor_dimensions);
        return {dimensions.at(0), dimensions.at(1), dimensions.at(2), dimensions.at(3)};
    }
    static int64_t offset(const Item& tensor, const Index& at) {
        const auto strides = tensor.all<int64_t>(Attribute::tensor_strides);
        const Index shape = shape_of(tensor);
        int64_t sum = 0;
        for (size_t i = 0; i < 4; ++i) sum += (shape[i] == 1 ? 0 : at[i]) * strides.at(i);
        return sum;
    }
    static DataType type_of(const Item& tensor) { return tensor.one<DataType>(Attribute::tensor_type); }
    bool is_here(const Item& tensor) const {
        return tensor.one<char>(Attribute::tensor_is_virtual) != 0 ||
               tensor.one<char>(Attribute::tensor_is_by_value) != 0;
    }

    float get(const Item& tensor, const Index& at) const {
        if (is_here(tensor)) return values_.at(id_of(tensor)).at(size_t(offset(tensor, at)));
        const void* const data = pointers_.at(id_of(tensor));
        require(reinterpret_cast<uintptr_t>(data) % 16 == 0, "cuDNN: an operand is not aligned");
        return type_of(tensor) == DataType::bfloat16
                   ? float(static_cast<const bf16*>(data)[offset(tensor, at)])
                   : static_cast<const float*>(data)[offset(tensor, at)];
    }
    void put(const Item& tensor, const Index& at, float value) {
        if (type_of(tensor) == DataType::bfloat16) value = float(bf16(value));
        if (!is_here(tensor)) {
            void* const data = pointers_.at(id_of(tensor));
            if (type_of(tensor) == DataType::bfloat16)
                static_cast<bf16*>(data)[offset(tensor, at)] = bf16(value);
            else
                static_cast<float*>(data)[offset(tensor, at)] = value;
            return;
        }
        std::vector<float>& values = values_[id_of(tensor)];
        const Index shape = shape_of(tensor);
        values.resize(size_t(shape[0] * shape[1] * shape[2] * shape[3]));
        values.at(size_t(offset(tensor, at))) = value;
    }
    template <class F>
    static void for_each(const Index& shape, F&& f) {
        Index at;
        for (at[0] = 0; at[0] < shape[0]; ++at[0])
            for (at[1] = 0; at[1] < shape[1]; ++at[1])
                for (at[2] = 0; at[2] < shape[2]; ++at[2])
                    for (at[3] = 0; at[3] < shape[3]; ++at[3]) f(at);
    }

    void multiply(const Item& operation) {
        const Item &a = operation.item(Attribute::operation_matmul_a),
                   &b = operation.item(Attribute::operation_matmul_b),
                   &c = operation.item(Attribute::operation_matmul_c);
        const Index left = shape_of(a), right = shape_of(b), shape = shape_of(c);
        require(left[3] == right[2] && shape[2] == left[2] && shape[3] == right[3] && left[1] % right[1] == 0,
                "cuDNN: a product of shapes that do not fit");
        for_each(shape, [&](const Index& at) {
            float sum = 0;
            for (int64_t i = 0; i < left[3]; ++i)
                sum += get(a, {at[0], at[1], at[2], i}) *
                       get(b, {at[0], at[1] / (left[1] / right[1]), i, at[3]});
            put(c, at, sum);
        });
    }
    void reduce(const Item& operation) {
        const Item &x = operation.item(Attribute::operation_reduction_x),
                   &y = operation.item(Attribute::operation_reduction_y);
        const bool is_sum =
            operation.item(Attribute::operation_reduction_descriptor)
                .one<cudnn::Reduction>(Attribute::reduction_operator) == cudnn::Reduction::add;
        for_each(shape_of(y), [&](const Index& at) {
            float result = is_sum ? 0 : -HUGE_VALF;
            for (int64_t i = 0; i < shape_of(x)[3]; ++i) {
                const float value = get(x, {at[0], at[1], at[2], i});
                result = is_sum ? result + value : std::max(result, value);
            }
            put(y, at, result);
        });
    }
    void pointwise(const Item& operation) {
        const Item &function = operation.item(Attribute::operation_pointwise_descriptor),
                   &x = operation.item(Attribute::operation_pointwise_x),
                   &y = operation.item(Attribute::operation_pointwise_y);
        const auto second = [&](const Index& at) {
            return get(operation.item(Attribute::operation_pointwise_b), at);
        };
        for_each(shape_of(y), [&](const Index& at) {
            const auto value = [&]() -> float {
                switch (function.one<Pointwise>(Attribute::pointwise_mode)) {
                    case Pointwise::add: return get(x, at) + second(at);
                    case Pointwise::multiply: return get(x, at) * second(at);
                    case Pointwise::divide: return get(x, at) / second(at);
                    case Pointwise::subtract: return get(x, at) - second(at);
                    case Pointwise::exp: return std::exp(get(x, at));
                    case Pointwise::log: return std::log(get(x, at));
                    case Pointwise::not_less: return get(x, at) >= second(at) ? 1 : 0;
                    case Pointwise::index:
                        return float(at.at(size_t(function.one<int64_t>(Attribute::pointwise_axis))));
                    case Pointwise::select:
                        return get(operation.item(Attribute::operation_pointwise_t), at) != 0 ? get(x, at)
                                                                                              : second(at);
                }
                throw LogicError("cuDNN: the stand-in has no such function");
            };
            put(y, at, value());
        });
    }

    std::map<int64_t, void*> pointers_;
    std::map<int64_t, std::vector<float>> values_;
};

Item& item_of(void* descriptor) {
    return *static_cast<Item*>(descriptor);
}

int set_attribute(void* descriptor, Attribute name, Type type, int64_t count, const void* values) {
    Item& item = item_of(descriptor);
    require(!item.is_final, "cuDNN: an attribute is set after finalize");
    const char* const bytes = static_cast<const char*>(values);
    item.attributes[name].assign(bytes, bytes + size_t(count) * size_of(type));
    if (type == Type::descriptor)
        for (const Item* part : item.all<const Item*>(name))
            require(part->is_final, "cuDNN: a part is not finalized");
    // a plan keeps what it needs of its configuration, since the caller may destroy that
    if (name == Attribute::plan_engine_config)
        item.attributes[Attribute::heuristics_graph] =
            item.item(name).attributes.at(Attribute::heuristics_graph);
    return 0;
}

int get_attribute(void* descriptor, Attribute name, Type, int64_t, int64_t* count, void* values) {
    *count = 1;
    switch (name) {
        case Attribute::heuristics_results: {
            void* const configuration = *static_cast<void**>(values);
            item_of(configuration).attributes[Attribute::heuristics_graph] =
                item_of(descriptor).attributes.at(Attribute::heuristics_graph);
            item_of(configuration).is_final = true;
            return 0;
        }
        case Attribute::engine_config_engine: return 0;
        case Attribute::engine_notes: *count = 0; return 0;
        case Attribute::plan_workspace: *static_cast<int64_t*>(values) = 256; return 0;
        default: throw LogicError("cuDNN: the stand-in does not know this attribute");
    }
}

int execute(void* handle, void* plan, void* pack) {
    require(item_of(plan).is_final && item_of(pack).is_final, "cuDNN: run before finalize");
    require(item_of(pack).one<void*>(Attribute::variant_pack_workspace) != nullptr, "cuDNN: no workspace");
    const Item& graph = item_of(plan).item(Attribute::heuristics_graph);
    const auto operations = graph.all<const Item*>(Attribute::graph_operations);
    const auto run = std::make_shared<Run>(item_of(pack));
    for (const Item* operation : operations)
        if (operation->has(Attribute::operation_pointwise_b))
            run->take_scalar(operation->item(Attribute::operation_pointwise_b));
    emulation::give(static_cast<Handle*>(handle)->stream, [run, operations] {
        for (const Item* operation : operations) (*run)(*operation);
    });
    return 0;
}

}  // namespace

CudnnLibrary coeus::cuda::load_cudnn(const std::string& path) {
    if (path != "stand-in") throw ConfigError("cuDNN cannot be loaded: the emulated GPU has none");
    CudnnLibrary library;
    library.get_version = []() -> size_t { return 91900; };
    library.get_error_string = [](int) { return "no error"; };
    library.get_last_error_string = [](char* text, size_t) { *text = 0; };
    library.create = [](void** handle) {
        *handle = new Handle;
        return 0;
    };
    library.destroy = [](void* handle) {
        delete static_cast<Handle*>(handle);
        return 0;
    };
    library.set_stream = [](void* handle, void* stream) {
        static_cast<Handle*>(handle)->stream = static_cast<cudaStream_t>(stream);
        return 0;
    };
    library.create_descriptor = [](Kind kind, void** descriptor) {
        *descriptor = new Item{kind};
        return 0;
    };
    library.destroy_descriptor = [](void* descriptor) {
        delete static_cast<Item*>(descriptor);
        return 0;
    };
    library.finalize = [](void* descriptor) {
        item_of(descriptor).is_final = true;
        return 0;
    };
    library.set_attribute = set_attribute;
    library.get_attribute = get_attribute;
    library.execute = execute;
    return library;
}
