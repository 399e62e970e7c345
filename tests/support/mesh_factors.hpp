// SPDX-License-Identifier: Apache-2.0
// What a mesh is combined with in the tests that compare it with one rank: a few factors, each of a few
// choices. Their full product takes hours; a part of it has any two choices together (pairwise testing, Cohen
// et al. 1997, "The AETG system").
#pragma once

#include "support/mesh_run.hpp"

namespace coeus::test {

/// One thing that cases differ in.
struct MeshFactor {
    int choices;
    bool (*matters)(const MeshShape& mesh);  ///< where not, it has its first choice
    void (*set)(MeshCase& c, int choice);    ///< in the order of the factors
    bool drawn = false;                      ///< in the full product: one choice, not all
};
const std::vector<MeshFactor>& mesh_factors();

/// Twice as many micro-batches as the mesh has pipeline ranks, which all schedules take.
void set_schedule(MeshCase& c, const Schedule& schedule);

/// A choice for each factor.
using MeshChoices = std::vector<int>;
struct MeshVariant {
    MeshShape mesh;
    MeshChoices choices;
    MeshCase mesh_case() const;
};

/// Every mesh with every combination of what matters on it and is not drawn.
std::vector<MeshVariant> full_product(const std::vector<MeshShape>& meshes);
/// Every mesh once with all first choices; and any two choices together that some mesh allows.
/// The same on every rank and in every run.
std::vector<MeshVariant> pairwise_complete(const std::vector<MeshShape>& meshes);

}  // namespace coeus::test
