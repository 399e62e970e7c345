// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN instead of our own kernels on a GPU.
#pragma once

#include "coeus/kernels/kernels.hpp"

#include <string>
#include <vector>

namespace coeus {

/// Processor::cudnn_bytes of a run that uses cuDNN. A deterministic backward keeps a sequence x sequence
/// matrix for each head that it computes at once: 2 GiB for four heads and 16,384 tokens, or one head and
/// 32,768.
constexpr int64_t most_cudnn_bytes = int64_t(2304) << 20;

/// A call of Kernels::attention or merge_attention, or of attention_backward if `is_backward` is set. The
/// tensors have no memory; those of the gradients are for a backward.
struct AttentionCall {
    AttentionShape shape;
    Tensor out, q, k, v, document_start;
    Tensor dq, dk, dv, dout;
    bool is_backward = false;

    /// "1 x 4096 tokens, 32 heads of width 128, backward"; for parts of sequences "2 x 1024 queries and 2048
    /// keys, ..."
    std::string text() const;
};
/// The same types, sizes and distances of rows, and blocks of scores under the same masks.
bool same(const AttentionCall& a, const AttentionCall& b);
void add_if_new(std::vector<AttentionCall>& calls, const AttentionCall& call);
/// The calls that an Exec met which plans for a GPU with cuDNN, each once.
std::vector<AttentionCall> planned_attention(const Exec& planning);

/// Loads cuDNN. Returns its name and version. ConfigError if it cannot be loaded.
std::string find_cudnn();
/// From now on cuDNN computes the attention of this Exec on a GPU if it supports it (bfloat16, no masks but
/// the causal one) and Exec's cudnn_bytes are not 0. Returns cuDNN's name and version. ConfigError if cuDNN
/// cannot be loaded or does not work with the GPU.
std::string use_cudnn(Exec& exec);
/// Which kernel will compute a call.
struct AttentionKernel {
    /// "engine 6, notes 0, 4429185280 bytes of workspace"; empty: our own.
    std::string by_cudnn;
    /// Why it is our own kernel.
    std::string why;
    /// The reason is that cuDNN cannot do what Coeus would ask for. Otherwise Coeus does not ask it for such
    /// calls.
    bool is_refused = false;
};
/// Chooses cuDNN's kernel for calls like this one, before the first of them. Requires use_cudnn.
AttentionKernel choose_kernel(Exec& exec, const AttentionCall& call);
/// From now on our own kernels compute the attention of this Exec.
void use_own_attention(Exec& exec);

}  // namespace coeus
