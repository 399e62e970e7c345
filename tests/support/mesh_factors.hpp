// SPDX-License-Identifier: Apache-2.0
// The factors that tests combine with a mesh when they compare it with one rank: a few factors with a few
// choices each. Their full product takes hours. A part of it contains every pair of choices (pairwise
// testing, Cohen et al. 1997, "The AETG system").
#pragma once

#include "support/mesh_run.hpp"

#include <set>
#include <tuple>

namespace coeus::test {

/// One property in which cases differ.
struct MeshFactor {
    int choices;
    bool (*matters)(const MeshShape& mesh);  ///< if false, only the first choice is used
    void (*set)(MeshCase& c, int choice);    ///< called in the order of the factors
    bool drawn = false;                      ///< the full product takes one random choice, not all
    int needs = 0;  ///< has an effect only if the choices of so many factors before it are not 0
};
const std::vector<MeshFactor>& mesh_factors();

/// Divides the experts of a case that has any, over all ranks that can (1), as few as possible (2), or those
/// that do not divide each expert (3; if there is only one of these, as 2); 0: over none. Adds experts until
/// each rank has equally many.
void set_expert_ranks(MeshCase& c, int choice);
/// Divides each local batch into two halves that take turns, if several ranks divide the experts and there is
/// no pipeline.
void set_halves(MeshCase& c);
/// Selects a recipe (kernels/quantization.hpp): none (0), tensorwise, tensorwise with weights gathered in 8
/// bits, rowwise, MXFP8. Sets sizes that 8-bit products can divide, and some that they cannot. Blocks of MX
/// lie within the parts of tensor and context ranks. Steps of several local batches keep the operands of
/// weights. Called when the mesh, the experts and the sequences are set.
inline constexpr int recipe_choices = 5;
void set_recipe(MeshCase& c, int choice);
/// Freezes nothing (0), the embedding and the first two layers, or the third layer and parts of the others,
/// of stacked matrices too.
void set_frozen(MeshCase& c, int choice);
/// Uses twice as many micro-batches as the mesh has pipeline ranks, a number that all schedules accept.
void set_schedule(MeshCase& c, const Schedule& schedule);

/// A small case in float32 with a recipe, on any mesh.
MeshCase float32_case_of(const MeshShape& mesh, int recipe);

/// One choice for each factor.
using MeshChoices = std::vector<int>;
struct MeshVariant {
    MeshShape mesh;
    MeshChoices choices;
    MeshCase mesh_case() const;
};

/// The first of these variants, from number `first` on, that has no MXFP8. Its sequences are long, which
/// takes long on an emulated GPU.
MeshCase short_case(const std::vector<MeshVariant>& variants, size_t first);

/// Factor and choice of each of a pair.
using ChoicePair = std::tuple<size_t, int, size_t, int>;
/// The pairs of choices that have an effect in this case.
std::vector<ChoicePair> pairs_of(const MeshVariant& variant);

/// Every mesh with every combination of the factors that matter on it and are not drawn.
std::vector<MeshVariant> full_product(const std::vector<MeshShape>& meshes);
/// Every mesh once, and every pair of choices that some of these meshes allow, but none of those that are
/// tested elsewhere. The same on every rank and in every run.
std::vector<MeshVariant> pairwise_complete(const std::vector<MeshShape>& meshes,
                                           const std::vector<MeshShape>& tested_elsewhere = {});
/// The variants that rank 0 has, on every rank. Collective.
std::vector<MeshVariant> broadcast(const Communicator& world, const std::vector<MeshShape>& meshes,
                                   const std::vector<MeshVariant>& variants);

}  // namespace coeus::test
