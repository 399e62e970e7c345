// SPDX-License-Identifier: Apache-2.0
// What a rank of a mesh has of the parameters, and with which ranks it gathers them.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/state/fsdp.hpp"

#include <vector>

namespace coeus {

/// The place of a rank's part of each parameter.
ModelPlace place_in(const MeshShape& mesh, int rank);

/// The communicators of each sharding of the parameters, by its number.
std::vector<GatherRanks> gather_ranks(const Parameters& parameters, const Mesh& mesh);

}  // namespace coeus
