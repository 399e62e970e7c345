// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges.hpp"

namespace coeus {

Exchanges::Exchanges(const ExchangeOptions& options, const Mesh& mesh, Exec& exec, Stream& stream)
    : tp(mesh[axis::tp]),
      cp(mesh[axis::cp]),
      kv(make_kv_exchange(options.context, mesh[axis::cp], exec)),
      tokens(make_token_exchange(options.overlap_tokens, mesh[axis::tp], stream)),
      loss(options.split_loss || mesh.shape().tp == 1 ? split_loss() : whole_loss()),
      experts(mesh[axis::ep], mesh[axis::etp], options.expert_capacity) {}

}  // namespace coeus
