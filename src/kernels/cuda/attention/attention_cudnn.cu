// SPDX-License-Identifier: Apache-2.0
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../libraries/cudnn_attention.hpp"
#include "../workspace.hpp"
#include "attention_cudnn.hpp"
#include "attention_mma.hpp"
#include "coeus/base/log.hpp"
#include "coeus/kernels/cudnn.hpp"

#include <map>

namespace coeus::cuda {

namespace {

/// A kernel of cuDNN, or the reason why there is none.
template <class Attention>
struct Choice {
    std::unique_ptr<Attention> made;
    std::string why;
};
/// The choices for the shapes met so far.
template <class Shape, class Attention>
using Choices = std::map<Shape, Choice<Attention>>;

/// cuDNN and its handle, with a kernel for each shape met so far.
class Cudnn : public BackendState {
public:
    Cudnn(const std::string& path, cudaStream_t stream) : library_(load_cudnn(path)) {
        library_.check(library_.create(&handle_), "cudnnCreate");
        if (const int status = library_.set_stream(handle_, stream)) {
            library_.destroy(handle_);
            library_.check(status, "cudnnSetStream");
        }
    }
    ~Cudnn() override {
        forward_.clear();
        backward_.clear();
        library_.destroy(handle_);
    }

    std::string text() const { return library_.text(); }

    const Choice<CudnnAttention>& choice(const CudnnAttentionShape& shape, int64_t most_workspace) {
        return choose(forward_, shape, most_workspace);
    }
    const Choice<CudnnBackward>& choice(const CudnnBackwardShape& shape, int64_t most_workspace) {
        if (const std::string wrong = wrong_version_for_backward(library_.get_version(), shape.sequence);
            !wrong.empty())
            return backward_[shape] = {nullptr, wrong};
        return choose(backward_, shape, most_workspace);
    }
    bool knows(const CudnnAttentionShape& shape) const { return forward_.contains(shape); }
    bool knows(const CudnnBackwardShape& shape) const { return backward_.contains(shape); }

private:
    template <class Shape, class Attention>
    const Choice<Attention>& choose(Choices<Shape, Attention>& choices, const Shape& shape,
                                    int64_t most_workspace) {
        const auto [known, is_new] = choices.try_emplace(shape);
        if (is_new) try {
                known->second.made = std::make_unique<Attention>(library_, handle_, shape, most_workspace);
            } catch (const SystemError& error) {
                known->second.why = error.what();
            }
        return known->second;
    }

    CudnnLibrary library_;
    void* handle_ = nullptr;
    Choices<CudnnAttentionShape, CudnnAttention> forward_;
    Choices<CudnnBackwardShape, CudnnBackward> backward_;
};

Cudnn& cudnn_of(Exec& exec) {
    return static_cast<Cudnn&>(*state_of(exec).cudnn);
}

/// The kernel for a call; null if cuDNN has none, or if it would have to be loaded during a recording.
template <class Shape>
auto kernel_for(Exec& exec, const Shape& shape, int64_t most_workspace)
    -> decltype(cudnn_of(exec).choice(shape, most_workspace).made.get()) {
    Cudnn& cudnn = cudnn_of(exec);
    const bool is_new = !cudnn.knows(shape);
    if (is_new && is_recording(exec)) return nullptr;
    const auto& choice = cudnn.choice(shape, most_workspace);
    if (is_new && !choice.made)
        log::warn(
            "cuDNN does not compute attention of {} x {} tokens, {} heads of width {}: {}; using Coeus's "
            "kernel",
            shape.batch, shape.sequence, shape.heads, shape.head_dim, choice.why);
    return choice.made.get();
}

CudnnAttentionShape forward_shape(const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const AttentionShape& s) {
    return {s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, out.ld, q.ld, k.ld, v.ld};
}

CudnnBackwardShape backward_shape(const CudnnBackwardPart& part, bool deterministic, const Tensor& dout,
                                  const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const AttentionShape& s) {
    return {part.batch, s.sequence, part.heads, part.kv_heads, s.head_dim, s.batch * s.sequence,
            dout.ld,    out.ld,     q.ld,       k.ld,          v.ld,       deterministic};
}

}  // namespace

bool attention_cudnn(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                     const AttentionShape& s, Tensor workspace) {
    if (!state_of(exec).cudnn || workspace.bytes() == 0 || !cudnn_fits(out, q, document_start, s) ||
        !in_pieces({out, q, k, v}))
        return false;
    const CudnnAttention* const kernel = kernel_for(exec, forward_shape(out, q, k, v, s), workspace.bytes());
    if (!kernel) return false;
    kernel->run(out, lse, q, k, v, s.scale, workspace);
    return true;
}

bool attention_backward_cudnn(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                              Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                              const AttentionShape& s, bool accumulate) {
    if (!state_of(exec).cudnn ||
        !cudnn_backward_fits(exec, {dq, dk, dv, dout}, out, q, document_start, s, accumulate) ||
        !in_pieces({dout, out, q, k, v}))
        return false;
    const CudnnBackwardPart part = *backward_part(exec, s);
    const CudnnBackwardBytes bytes = backward_bytes(part, s, exec.deterministic);
    const CudnnBackward* const kernel =
        kernel_for(exec, backward_shape(part, exec.deterministic, dout, out, q, k, v, s), bytes.library);
    if (!kernel) return false;

    const Scope scope(exec.workspace);
    const auto alloc = [&](Dtype type, const Shape& shape) { return exec.workspace.alloc(type, shape); };
    const int64_t d = s.head_dim, rows = part.batch * s.sequence, columns = part.heads * d,
                  kv_columns = part.kv_heads * d;
    const Tensor library = alloc(Dtype::u8, {bytes.library});  // at a multiple of 256 bytes
    const Tensor delta = alloc(Dtype::f32, {part.heads, rows});
    const Tensor sums = exec.deterministic ? Tensor() : alloc(Dtype::f32, {part.heads * rows, d});
    // dq, dk and dv may be the memory of q, k and v, over which cuDNN cannot write
    const Tensor part_dq = alloc(Dtype::bf16, {rows, columns}),
                 part_dk = alloc(Dtype::bf16, {rows, kv_columns}),
                 part_dv = alloc(Dtype::bf16, {rows, kv_columns});
    for (int64_t first = 0; first < s.batch; first += part.batch)
        for (int64_t kv_head = 0; kv_head < s.kv_heads; kv_head += part.kv_heads) {
            const int64_t head = kv_head * (s.heads / s.kv_heads);
            const auto of_heads = [&](const Tensor& t) {
                return t.slice_rows(first * s.sequence, rows).slice_cols(head * d, columns);
            };
            const auto of_kv_heads = [&](const Tensor& t) {
                return t.slice_rows(first * s.sequence, rows).slice_cols(kv_head * d, kv_columns);
            };
            const Tensor statistics = lse.slice_rows(head, part.heads).slice_cols(first * s.sequence, rows);
            kernel->run({.dq = part_dq,
                         .dk = part_dk,
                         .dv = part_dv,
                         .dout = of_heads(dout),
                         .out = of_heads(out),
                         .lse = statistics,
                         .q = of_heads(q),
                         .k = of_kv_heads(k),
                         .v = of_kv_heads(v),
                         .delta = delta,
                         .sums = sums},
                        s.scale, library);
            Cuda::cast(exec, of_heads(dq), part_dq);
            Cuda::cast(exec, of_kv_heads(dk), part_dk);
            Cuda::cast(exec, of_kv_heads(dv), part_dv);
        }
    return true;
}

}  // namespace coeus::cuda

namespace coeus {

std::string use_cudnn(Exec& exec) {
    require(!exec.device->is_host(), "cuDNN is for GPUs");
    cuda::CudaState& state = cuda::state_of(exec);
    std::string why;
    for (const std::string& path : cuda::cudnn_paths()) try {
            auto cudnn = std::make_unique<cuda::Cudnn>(path, state.stream);
            std::string text = cudnn->text();
            state.cudnn = std::move(cudnn);
            return text;
        } catch (const std::runtime_error& error) {  // missing, or not for this GPU
            if (why.empty()) why = error.what();
        }
    throw ConfigError("{}", why);
}

AttentionKernel choose_kernel(Exec& exec, const AttentionCall& call) {
    const AttentionShape& s = call.shape;
    require(cuda::state_of(exec).cudnn != nullptr, "cuDNN is not used");
    const auto chosen = [](const auto& choice) {
        return choice.made ? AttentionKernel{choice.made->plan().text(), {}}
                           : AttentionKernel{{}, choice.why, true};
    };
    if (!cuda::cudnn_fits(call.out, call.q, call.document_start, s))
        return {{},
                "cuDNN is used for bfloat16, whole sequences under the causal mask only, and heads whose "
                "keys and values have the same width, a multiple of 8 up to 256"};
    if (!call.is_backward)
        return chosen(cuda::cudnn_of(exec).choice(cuda::forward_shape(call.out, call.q, call.k, call.v, s),
                                                  cuda::workspace::cudnn));
    if (!cuda::cudnn_backward_fits(exec, {call.dq, call.dk, call.dv, call.dout}, call.out, call.q,
                                   call.document_start, s, call.accumulate)) {
        if (exec.cudnn_bytes <= cudnn_forward_bytes) return {{}, "kernels.attention = \"cudnn_forward\""};
        if (!cuda::backward_part(exec, s))
            return {
                {},
                fmt::format("cuDNN's backward would need more than {} bytes of workspace", exec.cudnn_bytes),
                true};
        return {{},
                "cuDNN's backward is used for gradients in bfloat16 that are not added to others, and for "
                "heads of a width up to 128 (256 on sm_90)"};
    }
    const cuda::CudnnBackwardPart part = *cuda::backward_part(exec, s);
    return chosen(cuda::cudnn_of(exec).choice(
        cuda::backward_shape(part, exec.deterministic, call.dout, call.out, call.q, call.k, call.v, s),
        cuda::backward_bytes(part, s, exec.deterministic).library));
}

}  // namespace coeus
