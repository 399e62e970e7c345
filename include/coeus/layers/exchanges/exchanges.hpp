// SPDX-License-Identifier: Apache-2.0
// Exchanges: everything that ranks exchange within layers, as selected by the options. A context refers to
// them.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/layers/context.hpp"
#include "coeus/layers/exchanges/context_parallel.hpp"
#include "coeus/layers/exchanges/expert_exchange.hpp"
#include "coeus/layers/exchanges/loss_exchange.hpp"
#include "coeus/layers/exchanges/overlapped_tokens.hpp"

#include <array>
#include <functional>
#include <memory>
#include <optional>

namespace coeus {

struct ExchangeOptions {
    ContextParallel context;      ///< attention over divided sequences
    bool split_loss = true;       ///< see loss_exchange.hpp
    bool overlap_tokens = false;  ///< see overlapped_tokens.hpp
    bool copy_tokens = true;      ///< overlapped tokens of GPUs are copied from one to the other, if possible
    ProductTiles tiles = {};      ///< of products of overlapped tokens; the engine sets a GPU's
    double expert_capacity = 2;   ///< see ExpertCapacity
    bool expert_blocks = false;   ///< see BlocksExchange; the engine sets it, see EngineOptions
};

class Exchanges {
public:
    /// Which exchanges a context gets: those of training, those of the other computation of a pair, which
    /// takes turns with the first, or those of validation.
    enum class Pass : uint8_t { training, paired, validation };
    /// The mesh and the computation's Exec must outlive them. `streams`: how the exchanges of tokens and of
    /// experts' rows overlap with the computation.
    /// `rooms`: the memory for tokens that overlap; absent: it is only measured.
    Exchanges(const ExchangeOptions& options, const Mesh& mesh, Exec& exec, Stream::Mode streams,
              std::optional<TokenRooms> rooms = {});

    Stream token_stream, expert_stream;  // end after what their work refers to
    const Communicator &tp, &cp;
    std::unique_ptr<KvExchange> kv;
    std::unique_ptr<OverlappedTokens> overlapped_tokens;  ///< null: they do not overlap
    const TokenExchange& tokens;
    const LossExchange& loss;
    /// The first exchange is for a computation. The second is for another one, which takes turns with it.
    std::array<RoundsExchange, 2> experts;
    std::array<BlocksExchange, 2> expert_blocks;
    /// A context of layers that process this batch.
    Ctx context(const Workplace& at, const Batch& batch, Pass pass) const;
    /// A context of layers that generate: `cache` reads and fills a cache of keys and values, and knows how
    /// context-parallel ranks divide it.
    Ctx generating_context(const Workplace& at, const Batch& batch, const KvExchange& cache) const;
    /// Selects blocks or rounds for training.
    void use_blocks(bool use) { blocks_ = use; }
    /// The other work of every exchange between experts: ExpertExchange::set_meanwhile.
    void set_meanwhile(const std::function<void()>& meanwhile);
    /// ExpertExchange::extra_rounds of both computations together.
    int64_t extra_rounds() const { return experts[0].extra_rounds() + experts[1].extra_rounds(); }
    void forget_extra_rounds() {
        for (RoundsExchange& exchange : experts) exchange.forget_extra_rounds();
    }

private:
    const ExpertExchange& experts_for(Pass pass) const;
    bool blocks_;
};

}  // namespace coeus
