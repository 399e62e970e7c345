// SPDX-License-Identifier: Apache-2.0
#include "coeus/guards/replica_comparison.hpp"

#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/host_rows.hpp"
#include "coeus/io/checksum.hpp"
#include "coeus/state/held_block.hpp"
#include "coeus/state/replica.hpp"

#include <algorithm>
#include <map>

namespace coeus {

namespace {

constexpr size_t most_lines = 4;  // tensors that a message names

// The checksum that more than half of the replicas have; none if there is no majority.
std::optional<uint64_t> majority(const std::vector<uint64_t>& sums) {
    std::map<uint64_t, size_t> count;
    for (const uint64_t sum : sums)
        if (2 * ++count[sum] > sums.size()) return sum;
    return std::nullopt;
}

}  // namespace

ReplicaComparison::ReplicaComparison(const Parameters& parameters, const Mesh& mesh,
                                     const std::vector<std::string>& hosts)
    : parameters_(parameters), mesh_(mesh), hosts_(hosts) {
    for (const unsigned on_tp : {0u, unsigned(axis::tp)})
        for (const bool shared_table : {false, true}) add_group(axis::dp_replicate | on_tp, shared_table);
    text_ =
        groups_.empty()
            ? "guards.compare_replicas_interval: no two ranks of this mesh hold the same weights, so there "
              "is nothing to compare"
            : "Replicas are compared: " + text_;
}

std::vector<ReplicaComparison::Compared> ReplicaComparison::tensors_of(unsigned axes,
                                                                       bool shared_table) const {
    std::vector<Compared> all;
    for (const Storage& storage : parameters_.storages())
        for (const Param& param : storage.params()) {
            if (is_divided_over_tp(param) != !(axes & axis::tp) || (param.copies > 1) != shared_table)
                continue;
            const auto add = [&](const std::string& kind, Tensor tensor, const Device& device) {
                all.push_back({fmt::format("{} of {}", kind, param.name), &storage, &param, tensor, &device});
            };
            add("weights", storage.master, parameters_.master_device(storage));
            for (size_t i = 0; i < storage.moments.size(); ++i)
                add("moments " + storage.kept()[i].name, storage.moments[i], parameters_.moments_device());
            add("gradients", storage.gradient, parameters_.device());
        }
    return all;
}

void ReplicaComparison::add_group(unsigned axes, bool shared_table) {
    const unsigned among = axes | (shared_table ? axis::pp : 0u);
    std::vector<Compared> tensors = tensors_of(axes, shared_table);
    const int64_t most = mesh_.world().all_reduce(int64_t(tensors.size()), Reduce::max);
    if (most == 0 || mesh_.size(among) == 1) return;
    const Communicator& world = mesh_.world();
    unsigned present = 0;
    for (const Axis axis : all_axes)
        if (mesh_.size(axis) > 1) present |= axis;
    const std::string name = axes_name(among & present);
    // a tied table is compared only among the pipeline ranks that have it
    const int color = 2 * mesh_.shape().group_of(world.rank(), among) + (tensors.empty() ? 1 : 0);
    Group group = {world.split(color, "replicas over " + name), {}, std::move(tensors)};
    const int64_t rank = world.rank();
    group.world_ranks.resize(size_t(group.ranks.size()));
    group.ranks.all_gather(Tensor(group.world_ranks.data(), Dtype::i64, {int64_t(group.world_ranks.size())}),
                           Tensor(const_cast<int64_t*>(&rank), Dtype::i64, {1}));
    text_ += fmt::format("{}{} over {}", text_.empty() ? "" : ", ",
                         shared_table        ? "the tied table"
                         : (axes & axis::tp) ? "norms"
                                             : "matrices",
                         name);
    groups_.push_back(std::move(group));
}

std::string ReplicaComparison::compare() const {
    std::string here;
    for (const Group& group : groups_) {
        const std::string found = compare(group);  // collective: every rank compares every group
        if (here.empty()) here = found;
    }
    const Communicator& world = mesh_.world();
    // all ranks return the text of the lowest rank that has found a difference
    const int64_t key = here.empty() ? 0 : world.size() - world.rank();
    const int64_t first = world.all_reduce(key, Reduce::max);
    return first == 0 ? "" : broadcast_text(world, here, int(world.size() - first));
}

std::string ReplicaComparison::compare(const Group& group) const {
    const auto tensors = int64_t(group.tensors.size());
    const int ranks = group.ranks.size();
    if (ranks == 1 || tensors == 0) return "";
    std::vector<uint64_t> own, all(size_t(tensors * ranks));
    for (const Compared& tensor : group.tensors) {
        BlockSums sum(tensor.param->shape, tensor.param->shape.rows());
        for (const HeldBlock& block : blocks_of(*tensor.storage, *tensor.param, tensor.tensor))
            read_rows(*tensor.device, block.local, [&](const Tensor& rows, int64_t first) {
                sum.add(rows.data, size_of(rows.dtype), block.first_row + first, block.first_col, rows.rows(),
                        rows.cols());
            });
        own.push_back(sum.sums()[0]);
    }
    group.ranks.all_gather(Tensor(all.data(), Dtype::i64, {int64_t(all.size())}),
                           Tensor(own.data(), Dtype::i64, {tensors}));
    std::vector<std::string> lines;
    for (int64_t i = 0; i < tensors; ++i) {
        std::vector<uint64_t> sums;
        for (int64_t rank = 0; rank < ranks; ++rank) sums.push_back(all[size_t(rank * tensors + i)]);
        const std::optional<uint64_t> right = majority(sums);
        std::vector<std::string> wrong;
        if (std::ranges::count(sums, sums[0]) == ranks) continue;
        for (size_t rank = 0; rank < sums.size(); ++rank)
            if (sums[rank] != right)
                wrong.push_back(fmt::format("{} (host {})", group.world_ranks[rank],
                                            hosts_[size_t(group.world_ranks[rank])]));
        const std::string& what = group.tensors[size_t(i)].what;
        lines.push_back(right
                            ? fmt::format("the {} of rank {} differ from those of the {} other replicas",
                                          what, join(wrong, ", "), sums.size() - wrong.size())
                            : fmt::format("the {} of ranks {} differ, and no majority shows which are right",
                                          what, join(wrong, ", ")));
    }
    const size_t found = lines.size();
    if (found > most_lines) lines.resize(most_lines);
    if (found > most_lines) lines.push_back(fmt::format("{} more tensors differ", found - most_lines));
    return join(lines, "; ");
}

}  // namespace coeus
