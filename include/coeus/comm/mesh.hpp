// SPDX-License-Identifier: Apache-2.0
// The mesh of ranks: pp x dp_replicate x dp_shard x cp x tp, tp varying fastest. `axis` is always a mesh
// axis.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <array>
#include <map>
#include <string>
#include <vector>

namespace coeus {

/// The axes of a mesh. A set of axes is a mask: mesh[axis::dp_shard | axis::cp].
namespace axis {
enum Axis : unsigned { pp = 1, dp_replicate = 2, dp_shard = 4, cp = 8, tp = 16 };
constexpr unsigned dp = dp_replicate | dp_shard;  ///< ranks that read different samples
constexpr unsigned fsdp = dp_shard | cp;          ///< ranks that hold different shards of a parameter
}  // namespace axis
using axis::Axis;
/// Ranks over which losses are summed.
constexpr unsigned loss_axes = axis::pp | axis::dp | axis::cp;
/// Ranks that together own every parameter once.
constexpr unsigned owner_axes = axis::pp | axis::fsdp | axis::tp;
/// Outermost first.
constexpr std::array<Axis, 5> all_axes = {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp};

/// "dp_replicate x dp_shard"
std::string axes_name(unsigned axes);

/// Degrees of the axes; pure arithmetic, for any number of ranks, without MPI.
struct MeshShape {
    int pp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1;

    int degree(Axis axis) const;
    /// Product of the degrees in the mask.
    int size(unsigned axes) const;
    int ranks() const { return pp * dp_replicate * dp_shard * cp * tp; }
    /// Coordinate of a world rank along one axis.
    int coordinate(int rank, Axis axis) const;
    /// Rank within the group of ranks that differ only in these axes (the outer axis counts slower).
    int rank_in(int rank, unsigned axes) const;
    /// The same for all ranks of such a group, different between groups.
    int group_of(int rank, unsigned axes) const;
    /// "dp_replicate 2 x tp 4" (degrees above 1; "one rank" for none)
    std::string text() const;
    /// The groups of ranks that differ only in these axes, in order.
    std::vector<std::vector<int>> groups(unsigned axes) const;
    /// A line for each axis of more than one rank: its degree and the ranks of its first groups.
    std::string groups_text() const;
};

/// Communicators of a mesh that carry tensors between more than one rank.
int carrying_communicators(const MeshShape& shape);

/// Fills in dp_shard = -1 (what is left over) and checks that the product is `ranks`. The degrees are those
/// of the deck. Throws ConfigError naming the degrees, the rule and the nearest settings that work.
MeshShape resolve_mesh(MeshShape degrees, int ranks);

/// The communicators of one process. All are made at start, in one order, the same on every rank.
class Mesh {
public:
    /// `world.size()` must be `shape.ranks()`.
    Mesh(Communicator world, const MeshShape& shape);
    /// For planning: the mesh that `rank` of so many would see; its collectives do nothing.
    static Mesh planned(const MeshShape& shape, int rank);

    const MeshShape& shape() const { return shape_; }
    const Communicator& world() const { return world_; }
    int size(unsigned axes) const { return shape_.size(axes); }
    int rank(unsigned axes) const { return shape_.rank_in(world_.rank(), axes); }
    /// One of: each axis alone, dp, fsdp, loss_axes, owner_axes.
    const Communicator& operator[](unsigned axes) const;
    /// A second communicator over dp_shard x cp: gradients are reduced while weights are gathered.
    const Communicator& gradient_reduction() const { return *gradient_reduction_; }
    /// Tensors of this rank's GPU go by NCCL from now on: connects the communicators that carry any, in one
    /// order, the same on every rank. Collective. The mesh stays where it is.
    void connect(NcclWorld& nccl);
    /// Connects one that was split from one of the mesh's, where these are connected.
    void connect(Communicator& part) const;
    /// From now on; null: nobody. The observer is borrowed.
    void observe(CommunicationObserver* observer);

private:
    MeshShape shape_;
    Communicator world_;
    std::map<unsigned, Communicator> groups_;
    std::unique_ptr<Communicator> gradient_reduction_;
    NcclWorld* nccl_ = nullptr;
};

/// The mesh of one process alone, made once.
const Mesh& mesh_of_one();

}  // namespace coeus
