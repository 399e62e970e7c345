// SPDX-License-Identifier: Apache-2.0
// Ctx: everything that a layer may use while it processes one micro-batch. It has only references.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/layers/batch.hpp"
#include "coeus/layers/flow.hpp"
#include "coeus/layers/frame.hpp"

namespace coeus {

class KvExchange;
/// Only the keys and values of the micro-batch; see kv_exchange.hpp.
const KvExchange& local_exchange();

class LossExchange;
/// Ranks with columns of the logits exchange statistics of the rows; see loss_exchange.hpp.
const LossExchange& split_loss();

class TokenExchange;
/// Tokens are exchanged all at once; see sequence_parallel.hpp.
const TokenExchange& whole_tokens();

class ExpertExchange;
/// This rank has all experts; see expert_exchange.hpp.
const ExpertExchange& all_experts();

class BlockInputs;
/// The inputs of recomputed blocks stay in the frame; see block_inputs.hpp.
const BlockInputs& inputs_in_frame();

/// What is known of each token after an evaluation, [T] each (acc): the loss, the label's logit, and the
/// largest logit. Absent: nobody asks.
struct ScoredTokens {
    Tensor losses = {}, label_logits = {}, largest_logits = {};

    explicit operator bool() const { return bool(losses); }
};

/// What one computation uses, whatever its layers exchange with other ranks.
struct Workplace {
    Exec& exec;
    const Kernels& k;
    Frame& frame;
    Arena& temp;
    StepScalars& scalars;
    const BlockInputs& inputs = inputs_in_frame();
};

struct Ctx {
    Exec& exec;
    const Kernels& k;
    Frame& frame;
    Arena& temp;  ///< for tensors that end within a layer; a Scope frees them
    const Batch& batch;
    StepScalars& scalars;
    const KvExchange& kv = local_exchange();  ///< where attention gets keys and values
    const Communicator& tp = alone();  ///< the tensor-parallel ranks, which divide each layer's matrices
    const Communicator& cp = alone();  ///< the context-parallel ranks, which divide each sequence
    const TokenExchange& tokens = whole_tokens();   ///< how these exchange tokens around products
    const LossExchange& loss = split_loss();        ///< how these combine their parts of the loss
    const ExpertExchange& experts = all_experts();  ///< the ranks that divide the experts
    const BlockInputs& inputs = inputs_in_frame();  ///< where inputs of recomputed blocks are kept
    /// i64 [rows, columns], see Model::counters(): a router adds to its layer's row how often it has chosen
    /// each expert. Absent: nobody counts, in validation, generation and recomputation.
    Tensor counts = {};
    /// Where LossHead::evaluate() writes what it knows of each token.
    ScoredTokens scored = {};
    /// i32[1]: room for the largest magnitude of the gradient between blocks. Absent: nobody needs it.
    Tensor largest_of_gradient = {};
};

}  // namespace coeus
