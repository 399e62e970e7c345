// SPDX-License-Identifier: Apache-2.0
// Graphs of cuDNN: their descriptors, the operations that Coeus uses, and the choice of a kernel for them.
#pragma once

#include "cudnn.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace coeus::cuda {

/// A descriptor of cuDNN's graph API.
class CudnnDescriptor {
public:
    CudnnDescriptor(const CudnnLibrary& library, cudnn::Kind kind) : library_(&library) {
        library.check(library.create_descriptor(kind, &descriptor_), "cudnnBackendCreateDescriptor");
    }
    CudnnDescriptor(CudnnDescriptor&& other) noexcept
        : library_(other.library_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
    CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
        std::swap(library_, other.library_);
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    ~CudnnDescriptor() {
        if (descriptor_) library_->destroy_descriptor(descriptor_);
    }

    void* get() const { return descriptor_; }
    template <class T>
    CudnnDescriptor& set(cudnn::Attribute name, cudnn::Type type, const std::vector<T>& values) {
        library_->check(
            library_->set_attribute(descriptor_, name, type, int64_t(values.size()), values.data()),
            "cudnnBackendSetAttribute");
        return *this;
    }
    CudnnDescriptor& set(cudnn::Attribute name, const CudnnDescriptor& other) {
        return set<void*>(name, cudnn::Type::descriptor, {other.get()});
    }
    CudnnDescriptor& set(cudnn::Attribute name, bool value) {
        library_->check(library_->set_attribute(descriptor_, name, cudnn::Type::boolean, 1, &value),
                        "cudnnBackendSetAttribute");
        return *this;
    }
    void finalize() { library_->check(library_->finalize(descriptor_), "cudnnBackendFinalize"); }

private:
    const CudnnLibrary* library_;
    void* descriptor_ = nullptr;
};

/// A graph of operations on tensors of four dimensions: sequences, heads, rows, columns. Each function adds
/// an operation and returns its result.
class CudnnGraph {
public:
    /// The configurations of cuDNN's kernels for the graph, the one that is expected to be fastest first.
    /// `device_properties` is needed if the graph was built without a handle. SystemError if cuDNN does not
    /// support the graph.
    std::vector<CudnnDescriptor> configurations(const CudnnDescriptor* device_properties) const;

protected:
    using Dimensions = std::vector<int64_t>;
    /// Tensors with smaller numbers are in memory; those with others exist only inside the graph.
    static constexpr int64_t first_virtual = 100;

    explicit CudnnGraph(const CudnnLibrary& library) : library_(library) {}
    ~CudnnGraph() = default;
    CudnnGraph(CudnnGraph&&) = delete;

    /// A tensor in memory, at a multiple of 16 bytes.
    const CudnnDescriptor& tensor(int64_t id, cudnn::DataType type, const Dimensions& dimensions,
                                  const Dimensions& strides) {
        return tensor(id, type, dimensions, strides, false);
    }
    /// A number in the host's memory, which is read when the graph is given to a stream.
    const CudnnDescriptor& number(int64_t id) {
        return tensor(id, cudnn::DataType::float32, {1, 1, 1, 1}, {1, 1, 1, 1}, true);
    }
    /// A tensor inside the graph whose rows follow each other.
    const CudnnDescriptor& inside(cudnn::DataType type, const Dimensions& d) {
        return inside(type, d, {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1});
    }
    const CudnnDescriptor& inside(cudnn::DataType type, const Dimensions& dimensions,
                                  const Dimensions& strides) {
        return tensor(next_id_++, type, dimensions, strides, false);
    }
    /// c = a b, with float32 sums. A matrix of b serves several heads if b has fewer.
    const CudnnDescriptor& multiply(const CudnnDescriptor& a, const CudnnDescriptor& b,
                                    const CudnnDescriptor& c);
    /// y = the sum or the maximum of x along the dimensions in which y has fewer elements.
    const CudnnDescriptor& reduce(cudnn::Reduction op, const CudnnDescriptor& x, const CudnnDescriptor& y);
    const CudnnDescriptor& pointwise(cudnn::Pointwise mode, cudnn::DataType precision,
                                     const CudnnDescriptor& y, const CudnnDescriptor& x,
                                     const CudnnDescriptor* b = nullptr, const CudnnDescriptor* t = nullptr);
    /// y = the number of each row (axis 2) or column (axis 3) of x.
    const CudnnDescriptor& index(const CudnnDescriptor& x, int64_t axis, const CudnnDescriptor& y);
    /// The causal mask: float32 x [dimensions] where the number of the row is at least that of the column,
    /// else the number `otherwise`.
    const CudnnDescriptor& lower_triangle(const CudnnDescriptor& x, const Dimensions& dimensions,
                                          const CudnnDescriptor& otherwise);
    /// y = x with rounded elements, or with rows and columns exchanged, as y's type and strides say.
    const CudnnDescriptor& reshape(const CudnnDescriptor& x, const CudnnDescriptor& y);
    /// Completes the graph, for the GPU of the handle if that is not null. SystemError if cuDNN does not
    /// support it.
    void finish(void* handle);

private:
    const CudnnDescriptor& tensor(int64_t id, cudnn::DataType type, const Dimensions& dimensions,
                                  const Dimensions& strides, bool is_by_value);
    const CudnnDescriptor& keep(CudnnDescriptor descriptor);
    void add(CudnnDescriptor operation) { operations_.push_back(keep(std::move(operation)).get()); }

    const CudnnLibrary& library_;
    int64_t next_id_ = first_virtual;
    std::vector<std::unique_ptr<CudnnDescriptor>> parts_;
    std::vector<void*> operations_;
    std::unique_ptr<CudnnDescriptor> graph_;
};

/// A kernel for a graph, chosen for the GPU of a handle.
class CudnnPlan {
public:
    /// The fastest kernel, as cuDNN expects, that needs at most `most_workspace` bytes. `deterministic`: it
    /// gives the same bits each time. SystemError with the reason if there is none.
    CudnnPlan(const CudnnLibrary& library, void* handle, const CudnnGraph& graph, bool deterministic,
              int64_t most_workspace);

    /// Bytes of workspace that the kernel needs.
    int64_t workspace() const { return workspace_; }
    /// "engine 6, 4429185280 bytes of workspace, notes 0"
    const std::string& text() const { return text_; }
    /// The tensors' numbers and addresses; those of numbers() are in host memory.
    struct Operand {
        int64_t id;
        void* data;
    };
    void run(const std::vector<Operand>& operands, void* workspace) const;

private:
    const CudnnLibrary& library_;
    void* handle_;
    std::unique_ptr<CudnnDescriptor> plan_;
    int64_t workspace_ = 0;
    std::string text_;
};

/// The number of the engine of a configuration, and what cuDNN notes about its numbers.
struct CudnnEngine {
    int64_t number = 0;
    std::vector<cudnn::Note> notes;
    /// False if cuDNN notes that the bits may differ from call to call.
    bool is_deterministic() const;
    std::string text() const;
};
CudnnEngine engine_of(const CudnnLibrary& library, const CudnnDescriptor& configuration);

}  // namespace coeus::cuda
