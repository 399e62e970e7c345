// SPDX-License-Identifier: Apache-2.0
// Exchanges: everything that ranks exchange within layers, as selected by the options. A context refers to
// them.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/layers/context_parallel.hpp"
#include "coeus/layers/expert_rounds.hpp"
#include "coeus/layers/loss_exchange.hpp"
#include "coeus/layers/sequence_parallel.hpp"

namespace coeus {

struct ExchangeOptions {
    ContextParallel context;      ///< attention over divided sequences
    bool split_loss = true;       ///< see loss_exchange.hpp
    bool overlap_tokens = false;  ///< see sequence_parallel.hpp
    double expert_capacity = 2;   ///< see ExpertCapacity
};

struct Exchanges {
    /// The mesh and the computation's Exec must outlive them. `streams`: how the exchanges of tokens and of
    /// experts' rows overlap with the computation.
    Exchanges(const ExchangeOptions& options, const Mesh& mesh, Exec& exec, Stream::Mode streams);

    Stream token_stream, expert_stream;  // end after what their work refers to
    const Communicator &tp, &cp;
    std::unique_ptr<KvExchange> kv;
    std::unique_ptr<TokenExchange> tokens;
    const LossExchange& loss;
    /// Those of a computation, and of one that takes turns with it: each has rounds of its own.
    ExpertRanks experts, paired_experts;
};

}  // namespace coeus
