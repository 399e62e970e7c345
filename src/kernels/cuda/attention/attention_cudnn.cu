// SPDX-License-Identifier: Apache-2.0
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../libraries/cudnn_attention.hpp"
#include "../workspace.hpp"
#include "attention_cudnn.hpp"
#include "attention_mma.hpp"
#include "block_results.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/measured_backward.hpp"
#include "coeus/kernels/own_attention.hpp"

#include <map>
#include <utility>
#include <vector>

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
        for (const int64_t tokens : {shape.queries, shape.keys})
            if (const std::string wrong = wrong_version_for_backward(library_.get_version(), tokens);
                !wrong.empty())
                return backward_[shape] = {nullptr, wrong};
        return choose(backward_, shape, most_workspace);
    }
    /// Why our own kernels compute such a backward although cuDNN could; null if they do not.
    const std::string* why_own(const AttentionCall& call) const {
        for (const auto& [known, why] : own_)
            if (same(known, call)) return &why;
        return nullptr;
    }
    void take_own(const AttentionCall& call, const std::string& why) {
        if (!why_own(call)) own_.emplace_back(call, why);
    }
    void forget_own(const AttentionCall& call) {
        std::erase_if(own_, [&](const auto& known) { return same(known.first, call); });
    }
    bool has_own() const { return !own_.empty(); }

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
    std::vector<std::pair<AttentionCall, std::string>> own_;
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
            "cuDNN does not compute attention of {} x {} queries and {} keys, {} heads of width {}: {}; "
            "using "
            "Coeus's kernel",
            shape.batch, shape.queries, shape.keys, shape.heads, shape.head_dim, choice.why);
    return choice.made.get();
}

// Results of a block follow each other.
CudnnAttentionShape forward_shape(const ScoreBlock& block, const Tensor& out, const Tensor& q,
                                  const Tensor& k, const Tensor& v, const AttentionShape& s) {
    return {.batch = s.batch,
            .queries = block.queries,
            .keys = block.keys,
            .heads = s.heads,
            .kv_heads = s.kv_heads,
            .head_dim = s.head_dim,
            .q_rows = s.sequence,
            .k_rows = s.keys().count,
            .out_rows = block.queries,
            .ld_out = workspace::is_written_at_once(out, s) ? out.ld : s.heads * s.head_dim,
            .ld_q = q.ld,
            .ld_k = k.ld,
            .ld_v = v.ld,
            .causal = block.causal};
}

CudnnBackwardShape backward_shape(const ScoreBlock& block, const CudnnBackwardPart& part, bool deterministic,
                                  const Tensor& dout, const Tensor& out, const Tensor& q, const Tensor& k,
                                  const Tensor& v, const AttentionShape& s) {
    return {.batch = part.batch,
            .queries = block.queries,
            .keys = block.keys,
            .heads = part.heads,
            .kv_heads = part.kv_heads,
            .head_dim = s.head_dim,
            .q_rows = s.sequence,
            .k_rows = s.keys().count,
            .tokens = s.batch * s.sequence,
            .ld_dout = dout.ld,
            .ld_out = out.ld,
            .ld_q = q.ld,
            .ld_k = k.ld,
            .ld_v = v.ld,
            .causal = block.causal,
            .deterministic = deterministic};
}

/// The kernels for all blocks; nothing if cuDNN lacks one.
template <class Attention, class MakeShape>
std::optional<std::array<const Attention*, ScoreBlocks::most>> kernels_for(Exec& exec,
                                                                           const ScoreBlocks& blocks,
                                                                           int64_t most_workspace,
                                                                           const MakeShape& make_shape) {
    std::array<const Attention*, ScoreBlocks::most> kernels = {};
    size_t i = 0;
    for (const ScoreBlock& block : blocks)
        if (!(kernels[i++] = kernel_for(exec, make_shape(block), most_workspace))) return std::nullopt;
    return kernels;
}

}  // namespace

bool attention_cudnn(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                     const AttentionShape& s, bool merge) {
    if (!state_of(exec).cudnn || exec.cudnn_bytes == 0 || !cudnn_fits(q, document_start, s) ||
        !in_pieces({out, q, k, v}))
        return false;
    const ScoreBlocks blocks = blocks_of(s);
    const auto kernels = kernels_for<CudnnAttention>(
        exec, blocks, workspace::cudnn,
        [&](const ScoreBlock& block) { return forward_shape(block, out, q, k, v, s); });
    if (!kernels) return false;

    const Scope scope(exec.workspace);
    const Tensor library = exec.workspace.alloc(Dtype::u8, {workspace::cudnn});
    const bool at_once = workspace::is_written_at_once(out, s);
    BlockSum outs;
    BlockStatistics statistics;
    size_t i = 0;
    for (const ScoreBlock& block : blocks) {
        const int64_t rows = s.batch * block.queries;
        const Tensor of_block =
                         at_once ? out : exec.workspace.alloc(Dtype::bf16, {rows, s.heads * s.head_dim}),
                     lse_of_block = at_once ? lse : exec.workspace.alloc(Dtype::f32, {s.heads, rows});
        (*kernels)[i]->run(of_block, lse_of_block, q.slice_rows(block.first_query, block.queries),
                           k.slice_rows(block.first_key, block.keys),
                           v.slice_rows(block.first_key, block.keys), s.scale, library);
        outs.of[i] = {of_block.as<const bf16>(), block.first_query, block.queries};
        statistics.of[i++] = lse_of_block.as<const float>();
    }
    if (!at_once) merge_blocks(exec, out, lse, outs, statistics, s, merge);
    return true;
}

bool attention_backward_cudnn(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                              Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                              const AttentionShape& s, bool add_to_dq) {
    if (!state_of(exec).cudnn || !cudnn_backward_fits(exec, q, document_start, s) ||
        !in_pieces({dout, out, q, k, v}))
        return false;
    if (const Cudnn& cudnn = cudnn_of(exec);
        cudnn.has_own() && cudnn.why_own({s, out, q, k, v, document_start, dq, dk, dv, dout, true}))
        return false;
    const ScoreBlocks blocks = blocks_of(s);
    const CudnnBackwardPart part = *backward_part(exec, s);
    const CudnnBackwardBytes bytes = backward_bytes(part, s, exec.deterministic);
    const auto kernels =
        kernels_for<CudnnBackward>(exec, blocks, bytes.library, [&](const ScoreBlock& block) {
            return backward_shape(block, part, exec.deterministic, dout, out, q, k, v, s);
        });
    if (!kernels) return false;

    const Scope scope(exec.workspace);
    const auto alloc = [&](Dtype type, const Shape& shape) { return exec.workspace.alloc(type, shape); };
    const int64_t d = s.head_dim, columns = part.heads * d, kv_columns = part.kv_heads * d,
                  keys = s.keys().count;
    const Tensor library = alloc(Dtype::u8, {bytes.library});  // at a multiple of 256 bytes
    const Tensor delta = alloc(Dtype::u8, {bytes.delta}), sums = alloc(Dtype::u8, {bytes.sums});
    // dq, dk and dv may be the memory of q, k and v, over which cuDNN cannot write
    std::array<Tensor, ScoreBlocks::most> dqs, dks, dvs;
    BlockSum dq_sum, dk_sum, dv_sum;
    size_t number = 0;
    for (const ScoreBlock& block : blocks) {
        dqs[number] = alloc(Dtype::bf16, {part.batch * block.queries, columns});
        dks[number] = alloc(Dtype::bf16, {part.batch * block.keys, kv_columns});
        dvs[number] = alloc(Dtype::bf16, {part.batch * block.keys, kv_columns});
        dq_sum.of[number] = {dqs[number].as<const bf16>(), block.first_query, block.queries};
        dk_sum.of[number] = {dks[number].as<const bf16>(), block.first_key, block.keys};
        dv_sum.of[number] = {dvs[number].as<const bf16>(), block.first_key, block.keys};
        ++number;
    }
    for (int64_t first = 0; first < s.batch; first += part.batch)
        for (int64_t kv_head = 0; kv_head < s.kv_heads; kv_head += part.kv_heads) {
            const int64_t head = kv_head * (s.heads / s.kv_heads);
            const auto of_heads = [&](const Tensor& t) {
                return t.slice_rows(first * s.sequence, part.batch * s.sequence)
                    .slice_cols(head * d, columns);
            };
            const auto of_kv_heads = [&](const Tensor& t) {
                return t.slice_rows(first * keys, part.batch * keys).slice_cols(kv_head * d, kv_columns);
            };
            const Tensor statistics =
                lse.slice_rows(head, part.heads).slice_cols(first * s.sequence, part.batch * s.sequence);
            size_t i = 0;
            for (const ScoreBlock& block : blocks) {
                const auto queries = [&](const Tensor& t) {
                    return of_heads(t).slice_rows(block.first_query, block.queries);
                };
                const auto of_keys = [&](const Tensor& t) {
                    return of_kv_heads(t).slice_rows(block.first_key, block.keys);
                };
                (*kernels)[i]->run({.dq = dqs[i],
                                    .dk = dks[i],
                                    .dv = dvs[i],
                                    .dout = queries(dout),
                                    .out = queries(out),
                                    .lse = statistics.slice_cols(block.first_query, block.queries),
                                    .q = queries(q),
                                    .k = of_keys(k),
                                    .v = of_keys(v),
                                    .delta = delta,
                                    .sums = sums},
                                   s.scale, library);
                ++i;
            }
            sum_blocks(exec, of_heads(dq), dq_sum, s.sequence, add_to_dq);
            sum_blocks(exec, of_kv_heads(dk), dk_sum, keys, false);
            sum_blocks(exec, of_kv_heads(dv), dv_sum, keys, false);
        }
    return true;
}

std::string cudnn_text(Exec& exec) {
    return cudnn_of(exec).text();
}

void forget_own_backward(Exec& exec, const AttentionCall& call) {
    cudnn_of(exec).forget_own(call);
}

}  // namespace coeus::cuda

namespace coeus {

void take_own_backward(Exec& exec, const AttentionCall& call, const std::string& why) {
    cuda::cudnn_of(exec).take_own(call, why);
}

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

void use_own_attention(Exec& exec) {
    cuda::state_of(exec).cudnn.reset();
}

AttentionKernel choose_kernel(Exec& exec, const AttentionCall& call) {
    const AttentionShape& s = call.shape;
    require(cuda::state_of(exec).cudnn != nullptr, "cuDNN is not used");
    if (const std::string* const why = call.is_backward ? cuda::cudnn_of(exec).why_own(call) : nullptr)
        return {{}, *why};
    if (const std::string why = cuda::why_not_cudnn(call.q, call.document_start, s); !why.empty())
        return {{}, why};
    const std::optional<cuda::CudnnBackwardPart> part = cuda::backward_part(exec, s);
    if (call.is_backward && !cuda::cudnn_backward_fits(exec, call.q, call.document_start, s)) {
        if (exec.cudnn_bytes <= cudnn_forward_bytes) return {{}, "kernels.attention = \"cudnn_forward\""};
        if (!part)
            return {
                {},
                fmt::format("cuDNN's backward would need more than {} bytes of workspace", exec.cudnn_bytes),
                true};
        return {
            {},
            "cuDNN's backward is used for more than one token, and for heads of a width up to 128 (256 on "
            "sm_90)"};
    }
    std::vector<std::string> plans;  // each once
    const auto add = [&](const auto& choice) {
        if (!choice.made) return choice.why;
        if (const std::string text = choice.made->plan().text();
            std::find(plans.begin(), plans.end(), text) == plans.end())
            plans.push_back(text);
        return std::string();
    };
    cuda::Cudnn& cudnn = cuda::cudnn_of(exec);
    for (const cuda::ScoreBlock& block : cuda::blocks_of(s)) {
        const std::string why =
            call.is_backward
                ? add(cudnn.choice(cuda::backward_shape(block, *part, exec.deterministic, call.dout, call.out,
                                                        call.q, call.k, call.v, s),
                                   cuda::backward_bytes(*part, s, exec.deterministic).library))
                : add(cudnn.choice(cuda::forward_shape(block, call.out, call.q, call.k, call.v, s),
                                   cuda::workspace::cudnn));
        if (!why.empty()) return {{}, why, true};
    }
    return {join(plans, "; "), {}};
}

}  // namespace coeus
