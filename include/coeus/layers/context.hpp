// SPDX-License-Identifier: Apache-2.0
// Ctx: what a layer may touch while it runs one micro-batch. References only.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/layers/batch.hpp"
#include "coeus/layers/flow.hpp"
#include "coeus/layers/frame.hpp"

namespace coeus {

class KvExchange;
/// Keys and values of the micro-batch alone; see kv_exchange.hpp.
const KvExchange& local_exchange();

class LossExchange;
/// Ranks with columns of the logits exchange statistics of the rows; see loss_exchange.hpp.
const LossExchange& split_loss();

class TokenExchange;
/// Tokens are exchanged all at once; see sequence_parallel.hpp.
const TokenExchange& whole_tokens();

class BlockInputs;
/// Blocks that are computed again leave their inputs in the frame; see block_inputs.hpp.
const BlockInputs& inputs_in_frame();

struct Ctx {
    Exec& exec;
    const Kernels& k;
    Frame& frame;
    Arena& temp;  ///< for tensors that end within a layer; a Scope rewinds it
    const Batch& batch;
    StepScalars& scalars;
    const KvExchange& kv = local_exchange();        ///< where attention's keys and values come from
    const Communicator& tp = alone();               ///< ranks that divide each layer's matrices
    const TokenExchange& tokens = whole_tokens();   ///< how they exchange tokens around its products
    const LossExchange& loss = split_loss();        ///< how they come to a loss
    const BlockInputs& inputs = inputs_in_frame();  ///< where inputs of blocks are that are computed again
};

}  // namespace coeus
