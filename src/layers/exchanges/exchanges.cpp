// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/exchanges.hpp"

namespace coeus {

Exchanges::Exchanges(const ExchangeOptions& options, const Mesh& mesh, Exec& exec, Stream::Mode streams)
    : token_stream(mesh[axis::tp].size() > 1 ? streams : Stream::Mode::eager, exec, Priority::high),
      expert_stream(mesh[axis::ep].size() > 1 ? streams : Stream::Mode::eager, exec, Priority::high),
      tp(mesh[axis::tp]),
      cp(mesh[axis::cp]),
      kv(make_kv_exchange(options.context, mesh[axis::cp], exec)),
      tokens(make_token_exchange(options.overlap_tokens, mesh[axis::tp], token_stream)),
      loss(options.split_loss || mesh.shape().tp == 1 ? split_loss() : whole_loss()),
      experts{RoundsExchange(mesh[axis::ep], mesh[axis::etp], options.expert_capacity, expert_stream),
              RoundsExchange(mesh[axis::ep], mesh[axis::etp], options.expert_capacity, expert_stream)},
      expert_blocks{BlocksExchange(mesh[axis::ep], mesh[axis::etp], options.expert_capacity, expert_stream),
                    BlocksExchange(mesh[axis::ep], mesh[axis::etp], options.expert_capacity, expert_stream)},
      blocks_(options.expert_blocks) {}

void Exchanges::set_meanwhile(const std::function<void()>& meanwhile) {
    for (RoundsExchange& exchange : experts) exchange.set_meanwhile(meanwhile);
    for (BlocksExchange& exchange : expert_blocks) exchange.set_meanwhile(meanwhile);
}

}  // namespace coeus
