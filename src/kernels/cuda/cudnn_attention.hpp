// SPDX-License-Identifier: Apache-2.0
// Causal attention, forward, as a graph of cuDNN, which has one kernel for all of it. The backward is our
// own: cuDNN's deterministic one holds a sequence x sequence matrix for each head (1.1 GB for 32 heads and
// 4096 tokens on sm_80 and sm_90, as its plan reports), and the other one adds with atomics. Both keep the
// same from the forward: the natural logarithm of the sum of exp of the scores.
#pragma once

#include "coeus/kernels/kernels.hpp"
#include "cudnn.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace coeus::cuda {

/// True if cuDNN is used for this attention: bfloat16, whole sequences under the causal mask only, keys as
/// wide as values, and heads of whole pieces of 16 bytes that are at most 256 wide.
inline bool cudnn_fits(const Tensor& out, const Tensor& q, const Tensor& document_start,
                       const AttentionShape& s) {
    const auto is_whole = [&](const SequencePart& part) { return part == SequencePart{s.sequence}; };
    return q.dtype == Dtype::bf16 && out.dtype == Dtype::bf16 && !hides_early_keys(s, bool(document_start)) &&
           is_whole(s.queries()) && is_whole(s.keys()) && s.value_width() == s.head_dim &&
           s.head_dim % 8 == 0 && s.head_dim <= 256;
}

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

/// The sizes, and the distances in elements from one row of an operand to the next.
struct CudnnAttentionShape {
    int64_t batch, sequence, heads, kv_heads, head_dim;
    int64_t ld_out, ld_q, ld_k, ld_v;
    auto operator<=>(const CudnnAttentionShape&) const = default;
};

/// The graph of out = softmax(scale q k^T, causal) v and of lse.
class CudnnAttentionGraph {
public:
    /// Builds the graph for the GPU of a handle. If `handle` is null, configurations() needs device
    /// properties. SystemError if cuDNN does not support the graph.
    CudnnAttentionGraph(const CudnnLibrary& library, void* handle, const CudnnAttentionShape& shape);
    /// The configurations of cuDNN's kernels for the graph, the one that is expected to be fastest first.
    std::vector<CudnnDescriptor> configurations(const CudnnDescriptor* device_properties) const;

    enum Id : int64_t { q = 1, k, v, out, lse, scale, hidden, first_virtual };

private:
    const CudnnDescriptor& tensor(int64_t id, cudnn::DataType type, const std::vector<int64_t>& dimensions,
                                  const std::vector<int64_t>& strides, bool is_by_value = false);
    const CudnnDescriptor& scores(cudnn::DataType type);
    const CudnnDescriptor& row_values();
    const CudnnDescriptor& multiply(const CudnnDescriptor& a, const CudnnDescriptor& b,
                                    const CudnnDescriptor& c);
    const CudnnDescriptor& reduce(cudnn::Reduction op, const CudnnDescriptor& x);
    const CudnnDescriptor& pointwise(cudnn::Pointwise mode, cudnn::DataType precision,
                                     const CudnnDescriptor& y, const CudnnDescriptor& x,
                                     const CudnnDescriptor* b = nullptr, const CudnnDescriptor* t = nullptr);
    const CudnnDescriptor& index(const CudnnDescriptor& of, int64_t axis);
    const CudnnDescriptor& keep(CudnnDescriptor descriptor);

    const CudnnLibrary& library_;
    CudnnAttentionShape shape_;
    int64_t next_id_ = first_virtual;
    std::vector<std::unique_ptr<CudnnDescriptor>> parts_;
    std::vector<void*> operations_;
    std::unique_ptr<CudnnDescriptor> graph_;
};

/// The graph with a kernel that was chosen for the GPU of a handle.
class CudnnAttention {
public:
    /// SystemError if no kernel gives the same bits each time with at most `most_workspace` bytes of
    /// workspace.
    CudnnAttention(const CudnnLibrary& library, void* handle, const CudnnAttentionShape& shape,
                   int64_t most_workspace);
    void run(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
             double scale, const Tensor& workspace) const;

private:
    const CudnnLibrary& library_;
    void* handle_;
    CudnnAttentionGraph graph_;
    std::unique_ptr<CudnnDescriptor> plan_;
};

}  // namespace coeus::cuda
