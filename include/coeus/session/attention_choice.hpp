// SPDX-License-Identifier: Apache-2.0
// Which kernels compute attention on a GPU: cuDNN's or our own.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/kernels/cudnn.hpp"

#include <string>
#include <vector>

namespace coeus {

/// Whether the ranks use cuDNN.
struct AttentionLibrary {
    bool cudnn = false;
    /// "cuDNN 9.19.0", or "our own kernels: cuDNN cannot be loaded: ..."; empty on the host.
    std::string text;
};
/// What kernels.attention asks for, the same on all ranks. Collective over `world`. ConfigError if the deck
/// asks for cuDNN and it cannot be used.
AttentionLibrary attention_library(const Config& config, const Communicator& world, const Device& device);

/// What a run says at its start.
struct AttentionReport {
    /// "cuDNN 9.19.0, forward and backward"; empty on the host
    std::string text;
    /// For each direction in which cuDNN refuses a call of the run on some rank: call and reason.
    std::vector<std::string> warnings;
    std::vector<std::string> details;  ///< cuDNN's kernel for each call of this rank
};
/// Chooses the kernels for the calls of a run, before its first step. Collective over `world`. Errors as
/// attention_library().
AttentionReport choose_attention(const Config& config, const Communicator& world,
                                 const AttentionLibrary& library, Exec& exec,
                                 const std::vector<AttentionCall>& calls);

}  // namespace coeus
