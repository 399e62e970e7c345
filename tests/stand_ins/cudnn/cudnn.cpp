// SPDX-License-Identifier: Apache-2.0
// Stands in for cuDNN, whose source is not public. It accepts descriptors as the library does, and runs the
// operations of a graph one after the other on the emulated streams, in float32. Products that are added to
// float32 sums in memory are added in an order drawn from the seed, as atomics would. COEUS_CUDNN=stand-in
// loads it, and COEUS_CUDNN=stand-in-MODE one that lacks something (see Mode).
#include "../../../src/kernels/cuda/libraries/cudnn.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/types.hpp"
#include "stand_ins/cuda/block.hpp"
#include "stand_ins/cuda/cuda_runtime.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

using namespace coeus;
using namespace coeus::cuda;
using cudnn::Attribute;
using cudnn::DataType;
using cudnn::Kind;
using cudnn::Pointwise;
using cudnn::Type;

namespace {

// What the stand-in lacks.
enum class Mode {
    complete,
    old,               // 9.0.0: its backward is not used
    without_nvrtc,     // plans cannot be made
    without_backward,  // no kernel for graphs of the backward
    random,            // all engines note that they are not deterministic
    large,             // the backward needs 1 GiB more workspace
};
Mode mode = Mode::complete;
const char* last_error = "";
constexpr std::array<std::pair<const char*, Mode>, 6> modes = {
    {{"stand-in", Mode::complete},
     {"stand-in-old", Mode::old},
     {"stand-in-without-nvrtc", Mode::without_nvrtc},
     {"stand-in-without-backward", Mode::without_backward},
     {"stand-in-random", Mode::random},
     {"stand-in-large", Mode::large}}};

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

int64_t id_of(const Item& tensor) {
    return tensor.one<int64_t>(Attribute::tensor_id);
}
Index shape_of(const Item& tensor) {
    const auto dimensions = tensor.all<int64_t>(Attribute::tensor_dimensions);
    require(dimensions.size() == 4, "cuDNN: a tensor does not have four dimensions");
    return {dimensions[0], dimensions[1], dimensions[2], dimensions[3]};
}
Index strides_of(const Item& tensor) {
    const auto strides = tensor.all<int64_t>(Attribute::tensor_strides);
    require(strides.size() == 4, "cuDNN: a tensor does not have four strides");
    return {strides[0], strides[1], strides[2], strides[3]};
}
DataType type_of(const Item& tensor) {
    return tensor.one<DataType>(Attribute::tensor_type);
}
bool is_virtual(const Item& tensor) {
    return tensor.one<char>(Attribute::tensor_is_virtual) != 0;
}
bool is_by_value(const Item& tensor) {
    return tensor.one<char>(Attribute::tensor_is_by_value) != 0;
}
int64_t count_of(const Index& shape) {
    return shape[0] * shape[1] * shape[2] * shape[3];
}
template <class F>
void for_each(const Index& shape, F&& f) {
    Index at;
    for (at[0] = 0; at[0] < shape[0]; ++at[0])
        for (at[1] = 0; at[1] < shape[1]; ++at[1])
            for (at[2] = 0; at[2] < shape[2]; ++at[2])
                for (at[3] = 0; at[3] < shape[3]; ++at[3]) f(at);
}

// The tensors that an operation reads, and the one that it writes.
struct Operands {
    std::vector<const Item*> read;
    const Item* written;
};
Operands operands_of(const Item& operation) {
    const auto item = [&](Attribute name) { return &operation.item(name); };
    switch (operation.kind) {
        case Kind::operation_matmul:
            return {{item(Attribute::operation_matmul_a), item(Attribute::operation_matmul_b)},
                    item(Attribute::operation_matmul_c)};
        case Kind::operation_reduction:
            return {{item(Attribute::operation_reduction_x)}, item(Attribute::operation_reduction_y)};
        case Kind::operation_reshape:
            return {{item(Attribute::operation_reshape_x)}, item(Attribute::operation_reshape_y)};
        case Kind::operation_pointwise: {
            Operands all = {{item(Attribute::operation_pointwise_x)}, item(Attribute::operation_pointwise_y)};
            for (const Attribute name : {Attribute::operation_pointwise_b, Attribute::operation_pointwise_t})
                if (operation.has(name)) all.read.push_back(item(name));
            return all;
        }
        default: throw LogicError("cuDNN: the stand-in has no such operation");
    }
}

// What the stand-in must know of a graph.
struct GraphFacts {
    std::map<int64_t, const Item*> tensors;  // in memory and by value
    std::vector<int64_t> written;            // of those in memory
    int64_t workspace = 0;
    bool is_backward = false, adds_with_atomics = false;
};

// A kernel of cuDNN: it knows only graphs like attention, in which each virtual tensor is computed once, from
// what is there, and is used.
GraphFacts facts_of(const std::vector<const Item*>& operations) {
    GraphFacts facts;
    std::map<int64_t, int> uses;  // of virtual tensors
    int64_t products = 0;
    Index scores = {};
    for (const Item* operation : operations) {
        const Operands operands = operands_of(*operation);
        for (const Item* tensor : operands.read) {
            if (!is_virtual(*tensor))
                facts.tensors[id_of(*tensor)] = tensor;
            else {
                require(uses.count(id_of(*tensor)) > 0, "cuDNN: a tensor is used before it is computed");
                ++uses[id_of(*tensor)];
            }
        }
        const Item& written = *operands.written;
        if (is_virtual(written))
            require(uses.emplace(id_of(written), 0).second, "cuDNN: a tensor is computed twice");
        else {
            facts.tensors[id_of(written)] = &written;
            facts.written.push_back(id_of(written));
        }
        if (operation->kind == Kind::operation_matmul) {
            if (products++ == 0) scores = shape_of(written);
            facts.adds_with_atomics |= !is_virtual(written) && type_of(written) == DataType::float32;
        }
    }
    for (const auto& [id, count] : uses) require(count > 0, "cuDNN: a tensor of the graph is not used");
    constexpr int64_t products_of_backward = 5;
    facts.is_backward = products == products_of_backward;
    facts.workspace = 256;
    if (facts.is_backward) {  // as the plans of 9.19 on sm_90 say
        const auto padded = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
        if (!facts.adds_with_atomics)
            facts.workspace += 2 * scores[0] * scores[1] * padded(scores[2], 64) * padded(scores[3], 128);
        for (const Item* operation : operations)  // gradients of keys and values for all query heads
            if (operation->kind == Kind::operation_reduction &&
                type_of(*operands_of(*operation).read[0]) == DataType::bfloat16)
                facts.workspace += 2 * count_of(shape_of(*operands_of(*operation).read[0]));
        if (mode == Mode::large) facts.workspace += int64_t(1) << 30;
    }
    return facts;
}

// A running graph: the values of virtual tensors, and the addresses of the other tensors.
class Run {
public:
    explicit Run(const Item& pack) {
        const auto ids = pack.all<int64_t>(Attribute::variant_pack_ids);
        const auto pointers = pack.all<void*>(Attribute::variant_pack_pointers);
        require(ids.size() == pointers.size(), "cuDNN: not each tensor has an address");
        for (size_t i = 0; i < ids.size(); ++i)
            require(pointers_.emplace(ids[i], pointers[i]).second, "cuDNN: a tensor is given twice");
        workspace_ = pack.one<std::byte*>(Attribute::variant_pack_workspace);
    }
    // Exactly the tensors of the graph are given, at multiples of 16 bytes. What is written shares no memory
    // with anything else.
    void check(const GraphFacts& facts) {
        require(pointers_.size() == facts.tensors.size(), "cuDNN: not exactly the graph's tensors are given");
        workspace_bytes_ = facts.workspace;
        require(workspace_ && reinterpret_cast<uintptr_t>(workspace_) % 256 == 0,
                "cuDNN: the workspace is missing or not aligned");
        for (const auto& [id, tensor] : facts.tensors) {
            require(pointers_.count(id) > 0, "cuDNN: a tensor of the graph is not given");
            // scalars are in host memory, and are read when the graph is given to a stream
            if (is_by_value(*tensor))
                values_[id] = {*static_cast<const float*>(pointers_.at(id))};
            else
                require(reinterpret_cast<uintptr_t>(pointers_.at(id)) % 16 == 0,
                        "cuDNN: an operand is not aligned");
        }
        for (const int64_t id : facts.written) {
            const auto [begin, end] = range_of(*facts.tensors.at(id));
            require(end <= workspace_ || begin >= workspace_ + workspace_bytes_,
                    "cuDNN: a result is in the workspace");
            for (const auto& [other, tensor] : facts.tensors)
                if (other != id && !is_by_value(*tensor)) {
                    const auto [other_begin, other_end] = range_of(*tensor);
                    // rows of a result may lie between those of another tensor if neither reads the other
                    require(end <= other_begin || begin >= other_end || are_columns(id, *tensor, facts),
                            "cuDNN: a result shares memory with another tensor");
                }
        }
    }
    void operator()(const std::vector<const Item*>& operations) {
        std::fill_n(workspace_, workspace_bytes_, std::byte(0xff));
        for (const Item* operation : operations) {
            if (operation->kind == Kind::operation_matmul)
                multiply(*operation);
            else if (operation->kind == Kind::operation_reduction)
                reduce(*operation);
            else if (operation->kind == Kind::operation_reshape)
                exchange(*operation);
            else
                pointwise(*operation);
        }
    }

private:
    static int64_t offset(const Index& shape, const Index& strides, const Index& at) {
        int64_t sum = 0;
        for (size_t i = 0; i < 4; ++i) sum += (shape[i] == 1 ? 0 : at[i]) * strides[i];
        return sum;
    }
    std::pair<std::byte*, std::byte*> range_of(const Item& tensor) const {
        Index last = shape_of(tensor);
        for (int64_t& i : last) --i;
        auto* const begin = static_cast<std::byte*>(pointers_.at(id_of(tensor)));
        return {begin, begin + (offset(shape_of(tensor), strides_of(tensor), last) + 1) *
                                   (type_of(tensor) == DataType::bfloat16 ? 2 : 4)};
    }
    // True if the addresses of two tensors differ by less than the distance of their rows.
    bool are_columns(int64_t id, const Item& other, const GraphFacts& facts) const {
        const Item& tensor = *facts.tensors.at(id);
        const auto row = [](const Item& t) { return std::max(strides_of(t)[2], strides_of(t)[3]) * 2; };
        const int64_t distance = std::abs(range_of(tensor).first - range_of(other).first);
        const Index shape = shape_of(tensor);
        return type_of(tensor) == DataType::bfloat16 && row(tensor) == row(other) && distance < row(tensor) &&
               distance >= shape[1] * std::min(shape[2], shape[3]) * 2;
    }

    // A tensor's elements: in memory, or, if it is virtual or a number, in values_.
    struct View {
        Index shape, strides;
        DataType type;
        void* data;
        float* values;
        float get(const Index& at) const {
            const int64_t i = offset(shape, strides, at);
            if (values) return values[i];
            return type == DataType::bfloat16 ? float(static_cast<const bf16*>(data)[i])
                                              : static_cast<const float*>(data)[i];
        }
        void put(const Index& at, float value) const {
            const int64_t i = offset(shape, strides, at);
            if (values)
                values[i] = type == DataType::bfloat16 ? float(bf16(value)) : value;
            else if (type == DataType::bfloat16)
                static_cast<bf16*>(data)[i] = bf16(value);
            else
                static_cast<float*>(data)[i] = value;
        }
    };
    View view_of(const Item& tensor) {
        View view = {shape_of(tensor), strides_of(tensor), type_of(tensor), nullptr, nullptr};
        if (!is_virtual(tensor) && !is_by_value(tensor)) {
            view.data = pointers_.at(id_of(tensor));
            return view;
        }
        std::vector<float>& values = values_[id_of(tensor)];
        values.resize(size_t(count_of(view.shape)));
        view.values = values.data();
        const Index& s = view.shape;
        view.strides = {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1};
        return view;
    }

    void multiply(const Item& operation) {
        const Item& result = operation.item(Attribute::operation_matmul_c);
        const View a = view_of(operation.item(Attribute::operation_matmul_a)),
                   b = view_of(operation.item(Attribute::operation_matmul_b)), c = view_of(result);
        const Index &left = a.shape, &right = b.shape, &shape = c.shape;
        require(left[3] == right[2] && shape[2] == left[2] && shape[3] == right[3] && left[0] == shape[0] &&
                    right[0] == shape[0] && left[1] == shape[1] && left[1] % right[1] == 0,
                "cuDNN: a product of shapes that do not fit");
        const bool in_any_order = !is_virtual(result) && c.type == DataType::float32;
        for_each(shape, [&](const Index& at) {
            float sum = 0;
            const int64_t first = in_any_order ? int64_t(emulation::random_number() % uint64_t(left[3])) : 0;
            for (int64_t n = 0; n < left[3]; ++n) {
                const int64_t i = (first + n) % left[3];
                sum +=
                    a.get({at[0], at[1], at[2], i}) * b.get({at[0], at[1] / (left[1] / right[1]), i, at[3]});
            }
            c.put(at, sum);
        });
    }
    void reduce(const Item& operation) {
        const View x = view_of(operation.item(Attribute::operation_reduction_x)),
                   y = view_of(operation.item(Attribute::operation_reduction_y));
        const bool is_sum =
            operation.item(Attribute::operation_reduction_descriptor)
                .one<cudnn::Reduction>(Attribute::reduction_operator) == cudnn::Reduction::add;
        Index each = {};
        for (size_t i = 0; i < 4; ++i) {
            require(x.shape[i] % y.shape[i] == 0, "cuDNN: a sum of shapes that do not fit");
            each[i] = x.shape[i] / y.shape[i];
        }
        for_each(y.shape, [&](const Index& at) {
            float result = is_sum ? 0 : -HUGE_VALF;
            for_each(each, [&](const Index& i) {
                Index whole;
                for (size_t n = 0; n < 4; ++n) whole[n] = at[n] * each[n] + i[n];
                const float value = x.get(whole);
                result = is_sum ? result + value : std::max(result, value);
            });
            y.put(at, result);
        });
    }
    // The same elements, in the same places, as matrices whose rows are the columns.
    void exchange(const Item& operation) {
        const Item &from = operation.item(Attribute::operation_reshape_x),
                   &to = operation.item(Attribute::operation_reshape_y);
        const auto exchanged = [](Index i) {
            std::swap(i[2], i[3]);
            return i;
        };
        require(shape_of(to) == exchanged(shape_of(from)) && strides_of(to) == exchanged(strides_of(from)),
                "cuDNN: the stand-in only exchanges rows and columns");
        const View x = view_of(from), y = view_of(to);
        for_each(y.shape, [&](const Index& at) { y.put(at, x.get(exchanged(at))); });
    }
    void pointwise(const Item& operation) {
        const Item& function = operation.item(Attribute::operation_pointwise_descriptor);
        const auto function_mode = function.one<Pointwise>(Attribute::pointwise_mode);
        const View y = view_of(operation.item(Attribute::operation_pointwise_y));
        std::vector<View> from;  // x, b and t
        for (const Item* tensor : operands_of(operation).read) from.push_back(view_of(*tensor));
        for (const View& view : from)
            for (size_t i = 0; i < 4; ++i)
                require(view.shape[i] == y.shape[i] || view.shape[i] == 1,
                        "cuDNN: a function of shapes that do not fit");
        const size_t axis =
            function_mode == Pointwise::index ? size_t(function.one<int64_t>(Attribute::pointwise_axis)) : 0;
        for_each(y.shape, [&](const Index& at) {
            const auto x = [&] { return from[0].get(at); };
            const auto b = [&] { return from.at(1).get(at); };
            const auto value = [&]() -> float {
                switch (function_mode) {
                    case Pointwise::add: return x() + b();
                    case Pointwise::multiply: return x() * b();
                    case Pointwise::divide: return x() / b();
                    case Pointwise::subtract: return x() - b();
                    case Pointwise::exp: return std::exp(x());
                    case Pointwise::log: return std::log(x());
                    case Pointwise::identity: return x();
                    case Pointwise::not_less: return x() >= b() ? 1 : 0;
                    case Pointwise::index: return float(at.at(axis));
                    case Pointwise::select: return from.at(2).get(at) != 0 ? x() : b();
                }
                throw LogicError("cuDNN: the stand-in has no such function");
            };
            y.put(at, value());
        });
    }

    std::map<int64_t, void*> pointers_;
    std::map<int64_t, std::vector<float>> values_;
    std::byte* workspace_ = nullptr;
    int64_t workspace_bytes_ = 0;
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

std::vector<const Item*> operations_of(const Item& graph_holder) {
    return graph_holder.item(Attribute::heuristics_graph).all<const Item*>(Attribute::graph_operations);
}

int get_attribute(void* descriptor, Attribute name, Type, int64_t, int64_t* count, void* values) {
    *count = 1;
    switch (name) {
        case Attribute::heuristics_results: {
            if (mode == Mode::without_backward && facts_of(operations_of(item_of(descriptor))).is_backward) {
                *count = 0;
                return 0;
            }
            void* const configuration = *static_cast<void**>(values);
            item_of(configuration).attributes[Attribute::heuristics_graph] =
                item_of(descriptor).attributes.at(Attribute::heuristics_graph);
            item_of(configuration).is_final = true;
            return 0;
        }
        case Attribute::engine_config_engine: return 0;
        case Attribute::engine_number: *static_cast<int64_t*>(values) = 1; return 0;
        // as in cuDNN, engines that add with atomics need not say so
        case Attribute::engine_notes:
            *count = mode == Mode::random ? 1 : 0;
            if (mode == Mode::random) *static_cast<cudnn::Note*>(values) = cudnn::Note::nondeterministic;
            return 0;
        case Attribute::plan_workspace:
            *static_cast<int64_t*>(values) = facts_of(operations_of(item_of(descriptor))).workspace;
            return 0;
        default: throw LogicError("cuDNN: the stand-in does not know this attribute");
    }
}

int finalize(void* descriptor) {
    if (item_of(descriptor).kind == Kind::plan && mode == Mode::without_nvrtc) {
        last_error = "cannot load libnvrtc";
        return 1;
    }
    item_of(descriptor).is_final = true;
    return 0;
}

int execute(void* handle, void* plan, void* pack) {
    require(item_of(plan).is_final && item_of(pack).is_final, "cuDNN: run before finalize");
    const std::vector<const Item*> operations = operations_of(item_of(plan));
    const auto run = std::make_shared<Run>(item_of(pack));
    run->check(facts_of(operations));
    emulation::give(static_cast<Handle*>(handle)->stream, [run, operations] { (*run)(operations); });
    return 0;
}

}  // namespace

CudnnLibrary coeus::cuda::load_cudnn(const std::string& path) {
    const auto known =
        std::find_if(modes.begin(), modes.end(), [&](const auto& each) { return path == each.first; });
    if (known == modes.end()) throw ConfigError("cuDNN cannot be loaded: the emulated GPU has none");
    mode = known->second;
    CudnnLibrary library;
    library.get_version = []() -> size_t { return mode == Mode::old ? 90000 : 91900; };
    library.get_error_string = [](int) { return "CUDNN_STATUS_NOT_SUPPORTED"; };
    library.get_last_error_string = [](char* text, size_t size) {
        const std::string message = std::exchange(last_error, "");
        text[message.copy(text, size - 1)] = 0;
    };
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
    library.finalize = finalize;
    library.set_attribute = set_attribute;
    library.get_attribute = get_attribute;
    library.execute = execute;
    return library;
}
