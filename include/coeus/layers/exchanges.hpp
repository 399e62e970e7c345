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
    /// The mesh, the computation's Exec and the stream must outlive them.
    Exchanges(const ExchangeOptions& options, const Mesh& mesh, Exec& exec, Stream& stream);

    const Communicator &tp, &cp;
    std::unique_ptr<KvExchange> kv;
    std::unique_ptr<TokenExchange> tokens;
    const LossExchange& loss;
    ExpertRanks experts;
};

}  // namespace coeus
