// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/mesh_place.hpp"

namespace coeus {

ModelPlace place_in(const MeshShape& mesh, int rank) {
    const auto place = [&](unsigned tp, unsigned fsdp, unsigned ep) -> ShardPlace {
        return {.tp = mesh.size(tp),
                .tp_rank = mesh.rank_in(rank, tp),
                .fsdp = mesh.size(fsdp),
                .fsdp_rank = mesh.rank_in(rank, fsdp),
                .ep = mesh.size(ep),
                .ep_rank = mesh.rank_in(rank, ep),
                .replicas = mesh.dp_replicate,
                .replica = mesh.coordinate(rank, axis::dp_replicate)};
    };
    return {place(axis::tp, axis::fsdp, 0), place(axis::etp, axis::efsdp, axis::ep)};
}

std::vector<GatherRanks> gather_ranks(const Parameters& parameters, const Mesh& mesh) {
    const Communicator& replicas = mesh[axis::dp_replicate];
    std::vector<GatherRanks> ranks;
    for (size_t sharding = 0; sharding < parameters.places().size(); ++sharding)
        if (sharding == dense_sharding)
            ranks.push_back({mesh[axis::fsdp], mesh.gradient_reduction(), replicas});
        else if (sharding == parameters.expert_sharding_in_use())
            ranks.push_back({mesh[axis::efsdp], mesh.expert_gradient_reduction(), replicas});
        else  // what every rank has whole is not trained by gradients
            ranks.push_back({alone(), alone(), alone()});
    return ranks;
}

}  // namespace coeus
