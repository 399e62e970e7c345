// SPDX-License-Identifier: Apache-2.0
// Mesh: the ranks arranged along five axes, pp x dp_replicate x dp_shard x cp x tp, with tp varying fastest.
// In the code, `axis` always means an axis of the mesh.
//
// Layers of experts see the same ranks in another way. The block dp_shard x cp x tp of ranks is to them efsdp
// x ep x etp, with etp varying fastest: ep divides the experts, etp divides each expert, and efsdp divides
// the rows of what is left, like fsdp.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/comm/nccl_world.hpp"

#include <array>
#include <map>
#include <string>
#include <vector>

namespace coeus {

/// The axes of a mesh. A set of axes is a mask: mesh[axis::dp_shard | axis::cp].
namespace axis {
enum Axis : unsigned {
    pp = 1,
    dp_replicate = 2,
    dp_shard = 4,
    cp = 8,
    tp = 16,
    efsdp = 32,
    ep = 64,
    etp = 128
};
constexpr unsigned dp = dp_replicate | dp_shard;  ///< ranks that read different samples
constexpr unsigned fsdp = dp_shard | cp;          ///< ranks that hold different shards of a parameter
constexpr unsigned experts = efsdp | ep | etp;    ///< the experts' view of dp_shard x cp x tp
}  // namespace axis
using axis::Axis;
/// Axes of the ranks over which losses are summed.
constexpr unsigned loss_axes = axis::pp | axis::dp | axis::cp;
/// Axes of the ranks that together own every parameter exactly once.
constexpr unsigned owner_axes = axis::pp | axis::fsdp | axis::tp;
/// The outermost axis first. The experts' axes are another view of three of them.
constexpr std::array<Axis, 5> all_axes = {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp};
constexpr std::array<Axis, 3> expert_axes = {axis::efsdp, axis::ep, axis::etp};

/// "dp_replicate x dp_shard"
std::string axes_name(unsigned axes);

/// The degrees of the axes. Pure arithmetic for any number of ranks, without MPI.
struct MeshShape {
    int pp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1;
    int ep = 1;   ///< ranks that divide the experts; ep x etp must divide dp_shard x cp x tp
    int etp = 1;  ///< ranks that divide each expert: 1 or tp. If ep is 1, they are tp, whatever this says

    int degree(Axis axis) const;
    /// Product of the degrees in the mask, which has either usual axes or experts' axes.
    int size(unsigned axes) const;
    int ranks() const { return pp * dp_replicate * dp_shard * cp * tp; }
    /// Coordinate of a world rank along one axis.
    int coordinate(int rank, Axis axis) const;
    /// Rank within the group of ranks that differ only along these axes; the outermost axis varies slowest.
    int rank_in(int rank, unsigned axes) const;
    /// A number that is the same for all ranks of such a group, and different for other groups.
    int group_of(int rank, unsigned axes) const;
    /// The ranks of such a group, to which `rank` belongs, in order of rank_in().
    std::vector<int> ranks_of(int rank, unsigned axes) const;
    /// "dp_replicate 2 x tp 4", without degrees of 1; "one rank" if all are 1. If ep > 1, then the experts'
    /// view too: "dp_shard 4 x tp 2 (experts: efsdp 2 x ep 2 x etp 2)".
    std::string text() const;
    /// The groups of ranks that differ only along these axes, in order of group_of().
    std::vector<std::vector<int>> groups(unsigned axes) const;
    /// A line for each axis with more than one rank: its degree and the ranks of its first groups. If ep > 1,
    /// the experts' axes follow.
    std::string groups_text() const;
};

/// Number of a mesh's communicators that have more than one rank and carry tensors.
int carrying_communicators(const MeshShape& shape);
/// The most of them that a run may have: with pipelines one more, of the ranks with the embedding table.
int most_carrying_communicators(const MeshShape& shape);

/// Replaces dp_shard = -1 by the number of remaining ranks and checks that the product of the degrees is
/// `ranks`. The degrees are those of the deck. ConfigError with the degrees, the rule and the nearest
/// settings that work.
MeshShape resolve_mesh(MeshShape degrees, int ranks);

/// The communicators of one process. All are made at start, in the same order on every rank.
class Mesh {
public:
    /// `world.size()` must be `shape.ranks()`.
    Mesh(Communicator world, const MeshShape& shape);
    /// For planning runs: the mesh as `rank` of `shape.ranks()` ranks would see it. Its collectives do
    /// nothing.
    static Mesh planned(const MeshShape& shape, int rank);

    const MeshShape& shape() const { return shape_; }
    const Communicator& world() const { return world_; }
    int size(unsigned axes) const { return shape_.size(axes); }
    int rank(unsigned axes) const { return shape_.rank_in(world_.rank(), axes); }
    /// The communicator over these axes: one axis (also of the experts), dp, fsdp, loss_axes or owner_axes.
    /// LogicError for any other set.
    const Communicator& operator[](unsigned axes) const;
    /// A second communicator over dp_shard x cp, so that gradients are reduced while weights are gathered.
    const Communicator& gradient_reduction() const { return *gradient_reduction_; }
    /// The same over efsdp, for experts; gradient_reduction() itself if ep is 1.
    const Communicator& expert_gradient_reduction() const {
        return expert_gradient_reduction_ ? *expert_gradient_reduction_ : *gradient_reduction_;
    }
    /// From now on NCCL carries the tensors of this rank's GPU: connects the communicators that carry
    /// tensors, in the same order on every rank. Collective. The mesh must not be moved afterwards.
    void connect(NcclWorld& nccl, const NcclCtas& ctas = {});
    /// Connects a communicator that was split from one of the mesh's, if the mesh is connected.
    void connect(Communicator& part) const;
    /// Sets the observer of all communicators but world(). It is borrowed; null: none.
    void observe(CommunicationObserver* observer);

private:
    MeshShape shape_;
    Communicator world_;
    std::map<unsigned, Communicator> groups_;
    std::unique_ptr<Communicator> gradient_reduction_, expert_gradient_reduction_;
    NcclWorld* nccl_ = nullptr;
    NcclCtas ctas_;
};

/// The mesh of a single process; made once.
const Mesh& mesh_of_one();

}  // namespace coeus
