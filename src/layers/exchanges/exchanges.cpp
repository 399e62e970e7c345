// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/exchanges.hpp"

#include "coeus/base/log.hpp"

namespace coeus {

namespace {

std::unique_ptr<OverlappedTokens> make_overlapped(const ExchangeOptions& options, const Communicator& tp,
                                                  Stream& stream, std::optional<TokenRooms> rooms) {
    if (!options.overlap_tokens || tp.size() == 1) return nullptr;
    return std::make_unique<OverlappedTokens>(tp, stream, options.tiles, options.copy_tokens, rooms);
}

// The first rank that cannot copy says why. Collective.
void warn_of_messages(const std::string& why_no_copies, const Communicator& world) {
    const int64_t ranks = world.size(), rank = world.rank(),
                  first = ranks - world.all_reduce(why_no_copies.empty() ? 0 : ranks - rank, Reduce::max);
    if (rank == first)
        log::warn(
            "asynchronous tensor parallelism: GPUs cannot copy tokens into each other's memory ({}), so they "
            "send messages, which take longer",
            why_no_copies);
}

}  // namespace

Exchanges::Exchanges(const ExchangeOptions& options, const Mesh& mesh, Exec& exec, Stream::Mode streams,
                     std::optional<TokenRooms> rooms)
    : token_stream(mesh[axis::tp].size() > 1 ? streams : Stream::Mode::eager, exec, Priority::high),
      expert_stream(mesh[axis::ep].size() > 1 ? streams : Stream::Mode::eager, exec, Priority::high),
      tp(mesh[axis::tp]),
      cp(mesh[axis::cp]),
      kv(make_kv_exchange(options.context, mesh[axis::cp], exec)),
      overlapped_tokens(make_overlapped(options, mesh[axis::tp], token_stream, rooms)),
      tokens(overlapped_tokens ? static_cast<const TokenExchange&>(*overlapped_tokens) : whole_tokens()),
      loss(options.split_loss || mesh.shape().tp == 1 ? split_loss() : whole_loss()),
      experts{RoundsExchange(mesh[axis::ep], mesh[axis::etp], options.expert_capacity, expert_stream),
              RoundsExchange(mesh[axis::ep], mesh[axis::etp], options.expert_capacity, expert_stream)},
      expert_blocks{BlocksExchange(mesh[axis::ep], mesh[axis::etp], options.expert_capacity, expert_stream),
                    BlocksExchange(mesh[axis::ep], mesh[axis::etp], options.expert_capacity, expert_stream)},
      blocks_(options.expert_blocks) {
    const bool tried = rooms && overlapped_tokens && options.copy_tokens && !exec.device->is_host();
    if (tried && !tp.is_planned()) warn_of_messages(overlapped_tokens->why_no_copies(), mesh.world());
}

const ExpertExchange& Exchanges::experts_for(Pass pass) const {
    const size_t number = pass == Pass::paired ? 1 : 0;
    if (blocks_ && pass != Pass::validation) return expert_blocks[number];
    return experts[number];
}

Ctx Exchanges::context(const Workplace& at, const Batch& batch, Pass pass) const {
    return {.exec = at.exec,
            .k = at.k,
            .frame = at.frame,
            .temp = at.temp,
            .batch = batch,
            .scalars = at.scalars,
            .kv = *kv,
            .tp = tp,
            .cp = cp,
            .tokens = tokens,
            .loss = loss,
            .experts = experts_for(pass),
            .inputs = at.inputs};
}

Ctx Exchanges::generating_context(const Workplace& at, const Batch& batch, const KvExchange& cache) const {
    return {.exec = at.exec,
            .k = at.k,
            .frame = at.frame,
            .temp = at.temp,
            .batch = batch,
            .scalars = at.scalars,
            .kv = cache,
            .tp = tp,
            .tokens = tokens,
            .loss = loss,
            .experts = experts_for(Pass::validation),
            .inputs = at.inputs};
}

void Exchanges::set_meanwhile(const std::function<void()>& meanwhile) {
    for (RoundsExchange& exchange : experts) exchange.set_meanwhile(meanwhile);
    for (BlocksExchange& exchange : expert_blocks) exchange.set_meanwhile(meanwhile);
}

}  // namespace coeus
