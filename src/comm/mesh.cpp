// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/mesh.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace coeus {

namespace {

const char* axis_name(Axis axis) {
    switch (axis) {
        case axis::pp: return "pp";
        case axis::dp_replicate: return "dp_replicate";
        case axis::dp_shard: return "dp_shard";
        case axis::cp: return "cp";
        case axis::tp: return "tp";
        case axis::efsdp: return "efsdp";
        case axis::ep: return "ep";
        case axis::etp: return "etp";
    }
    return "?";
}

const char* option_name(Axis axis) {
    switch (axis) {
        case axis::pp: return "parallelism.pipeline_parallel_degree";
        case axis::dp_replicate: return "parallelism.data_parallel_replicate_degree";
        case axis::dp_shard: return "parallelism.data_parallel_shard_degree";
        case axis::cp: return "parallelism.context_parallel_degree";
        case axis::tp: return "parallelism.tensor_parallel_degree";
        default: return "?";
    }
    return "?";
}

}  // namespace

std::string axes_name(unsigned axes) {
    std::vector<std::string> names;
    const auto add = [&](Axis axis) {
        if (axes & axis) names.push_back(axis_name(axis));
    };
    for (Axis axis : all_axes) add(axis);
    for (Axis axis : expert_axes) add(axis);
    return join(names, " x ");
}

namespace {

// The axes of one view of the mesh, the outermost one first.
using View = std::span<const Axis>;
constexpr std::array<Axis, 5> experts_view = {axis::pp, axis::dp_replicate, axis::efsdp, axis::ep, axis::etp};

View view_of(unsigned axes) {
    if ((axes & axis::experts) == 0) return all_axes;
    require((axes & (axis::fsdp | axis::tp)) == 0, "axes of two views of the mesh");
    return experts_view;
}

}  // namespace

int MeshShape::degree(Axis axis) const {
    switch (axis) {
        case Axis::pp: return pp;
        case Axis::dp_replicate: return dp_replicate;
        case Axis::dp_shard: return dp_shard;
        case Axis::cp: return cp;
        case Axis::tp: return tp;
        case Axis::efsdp: return dp_shard * cp * tp / (ep * degree(Axis::etp));
        case Axis::ep: return ep;
        case Axis::etp: return ep > 1 ? etp : tp;
    }
    throw LogicError("unknown mesh axis");
}

int MeshShape::size(unsigned axes) const {
    int n = 1;
    for (Axis axis : view_of(axes))
        if (axes & axis) n *= degree(axis);
    return n;
}

int MeshShape::coordinate(int rank, Axis axis) const {
    const View view = view_of(axis);
    for (auto it = view.rbegin(); it != view.rend(); ++it) {
        if (*it == axis) return rank % degree(axis);
        rank /= degree(*it);
    }
    throw LogicError("unknown mesh axis");
}

int MeshShape::rank_in(int rank, unsigned axes) const {
    int r = 0;
    for (Axis axis : view_of(axes))
        if (axes & axis) r = r * degree(axis) + coordinate(rank, axis);
    return r;
}

int MeshShape::group_of(int rank, unsigned axes) const {
    int group = 0;
    for (Axis axis : view_of(axes))
        if (!(axes & axis)) group = group * degree(axis) + coordinate(rank, axis);
    return group;
}

std::vector<int> MeshShape::ranks_of(int rank, unsigned axes) const {
    const View view = view_of(axes);
    std::vector<int> ranks = {rank};
    int stride = 1;
    for (auto it = view.rbegin(); it != view.rend(); ++it) {
        const int n = degree(*it);
        if (axes & *it) {
            const std::vector<int> inner = std::move(ranks);
            ranks.clear();
            const int own = coordinate(rank, *it);
            for (int i = 0; i < n; ++i)
                for (const int other : inner) ranks.push_back(other + (i - own) * stride);
        }
        stride *= n;
    }
    return ranks;
}

std::string MeshShape::text() const {
    const auto text_of = [&](View axes) {
        std::vector<std::string> parts;
        for (Axis axis : axes)
            if (degree(axis) > 1) parts.push_back(fmt::format("{} {}", axis_name(axis), degree(axis)));
        return join(parts, " x ");
    };
    if (ranks() == 1) return "one rank";
    return text_of(all_axes) + (ep > 1 ? fmt::format(" (experts: {})", text_of(expert_axes)) : "");
}

std::vector<std::vector<int>> MeshShape::groups(unsigned axes) const {
    std::vector<std::vector<int>> all(size_t(ranks() / size(axes)));
    for (int rank = 0; rank < ranks(); ++rank) all[size_t(group_of(rank, axes))].push_back(rank);
    return all;
}

namespace {

// "0 - 7", "0 8", "0 8 16 ... 504"
std::string group_text(const std::vector<int>& ranks) {
    const size_t n = ranks.size();
    if (n > 2 && ranks.back() - ranks.front() == int(n) - 1)
        return fmt::format("{} - {}", ranks[0], ranks.back());
    if (n <= 4) {
        std::vector<std::string> names;
        for (const int rank : ranks) names.push_back(std::to_string(rank));
        return join(names, " ");
    }
    return fmt::format("{} {} {} ... {}", ranks[0], ranks[1], ranks[2], ranks.back());
}

}  // namespace

std::string MeshShape::groups_text() const {
    constexpr size_t most = 3;
    std::string text;
    const auto add = [&](Axis axis) {
        if (degree(axis) == 1) return;
        const auto all = groups(axis);
        std::vector<std::string> parts;
        for (size_t i = 0; i < std::min(most, all.size()); ++i) parts.push_back(group_text(all[i]));
        if (all.size() > most + 1) parts.push_back("...");
        if (all.size() > most) parts.push_back(group_text(all.back()));
        text +=
            fmt::format("{}{:<12} {:>5} ranks, {:>5} {}: {}", text.empty() ? "" : "\n", axis_name(axis),
                        degree(axis), all.size(), all.size() == 1 ? "group " : "groups", join(parts, " | "));
    };
    for (const Axis axis : all_axes) add(axis);
    if (ep > 1)
        for (const Axis axis : expert_axes) add(axis);
    return text;
}

MeshShape resolve_mesh(MeshShape degrees, int ranks) {
    for (Axis axis : all_axes) {
        const int degree = degrees.degree(axis);
        if (degree >= 1 || (axis == axis::dp_shard && degree == -1)) continue;
        throw ConfigError("{} = {}: a degree is at least 1{}", option_name(axis), degree,
                          axis == axis::dp_shard ? ", or -1 for all ranks that are left over" : "");
    }
    const bool leftover = degrees.dp_shard == -1;
    if (leftover) degrees.dp_shard = 1;
    const int others = degrees.ranks();
    const int fewer = std::max(others, ranks / others * others),
              more = fewer == ranks ? ranks : (ranks / others + 1) * others;
    if (leftover && ranks % others == 0) {
        degrees.dp_shard = ranks / others;
        return degrees;
    }
    if (leftover) {
        std::vector<std::string> given;
        for (Axis axis : all_axes)
            if (degrees.degree(axis) > 1)
                given.push_back(fmt::format("{} = {}", option_name(axis), degrees.degree(axis)));
        throw ConfigError("{}{}: {} {} not a multiple of {}; start {}{} ranks", join(given, ", "),
                          given.size() > 1 ? fmt::format(" (product {})", others) : "",
                          counted(ranks, "rank"), ranks == 1 ? "is" : "are", others,
                          fewer < ranks ? fmt::format("{} or ", fewer) : "", fewer < ranks ? more : others);
    }
    if (others != ranks) {
        const int without = others / degrees.dp_shard;
        const std::string remedy =
            ranks % without == 0
                ? fmt::format("; with {} set {} = {} (or -1: all that are left over)", counted(ranks, "rank"),
                              option_name(axis::dp_shard), ranks / without)
                : "";
        throw ConfigError("the degrees of [parallelism] ({}) need {}, but {} {} started: start {}{}",
                          degrees.text(), counted(others, "rank"), ranks, ranks == 1 ? "was" : "were", others,
                          remedy);
    }
    return degrees;
}

namespace {

// Communicators that carry tensors, besides gradient_reduction(): messages of stages, weights, replicas, keys
// and values, tokens, losses, norms. The data-parallel ranks exchange host numbers over `dp`, which is not in
// the list.
constexpr unsigned carrying_axes[] = {axis::pp, axis::fsdp, axis::dp_replicate, axis::cp,
                                      axis::tp, loss_axes,  owner_axes};
// Besides expert_gradient_reduction(), if ep > 1: weights of experts, and the rows that go to experts.
constexpr unsigned carrying_expert_axes[] = {axis::efsdp, axis::ep};

}  // namespace

int carrying_communicators(const MeshShape& shape) {
    const auto carries = [&](unsigned axes) { return shape.size(axes) > 1; };
    const auto usual = std::ranges::count_if(carrying_axes, carries) + carries(axis::fsdp);
    return int(shape.ep == 1
                   ? usual
                   : usual + std::ranges::count_if(carrying_expert_axes, carries) + carries(axis::efsdp));
}

int most_carrying_communicators(const MeshShape& shape) {
    return carrying_communicators(shape) + (shape.pp > 1 ? 1 : 0);
}

Mesh::Mesh(Communicator world, const MeshShape& shape) : shape_(shape), world_(std::move(world)) {
    require(world_.size() == shape_.ranks(), "the mesh needs as many ranks as its degrees say");
    const auto group = [&](unsigned axes, const std::string& name) {
        return world_.is_planned() ? Communicator::planned(rank(axes), size(axes), name)
                                   : world_.split(shape_.group_of(world_.rank(), axes), name);
    };
    std::vector<unsigned> wanted(all_axes.begin(), all_axes.end());
    wanted.insert(wanted.end(), {axis::dp, axis::fsdp, loss_axes, owner_axes});
    // named by the axes that have more than one rank
    unsigned present = 0;
    for (Axis axis : all_axes)
        if (shape_.degree(axis) > 1) present |= axis;
    const auto name_of = [&](unsigned axes) { return axes_name(axes & present ? axes & present : axes); };
    for (unsigned axes : wanted) groups_.emplace(axes, group(axes, name_of(axes)));
    const auto make_reduction = [&](unsigned axes, const std::string& name) {
        return std::make_unique<Communicator>(group(axes, name + ", gradients"));
    };
    gradient_reduction_ = make_reduction(axis::fsdp, name_of(axis::fsdp));
    if (shape_.ep == 1) return;
    for (const unsigned axes : carrying_expert_axes) groups_.emplace(axes, group(axes, axes_name(axes)));
    expert_gradient_reduction_ = make_reduction(axis::efsdp, axes_name(axis::efsdp));
}

Mesh Mesh::planned(const MeshShape& shape, int rank) {
    return {Communicator::planned(rank, shape.ranks(), "world"), shape};
}

const Communicator& Mesh::operator[](unsigned axes) const {
    // axes of the experts that are the same ranks as others, or one rank
    if (axes == axis::efsdp && shape_.ep == 1) axes = axis::fsdp;
    if (axes == axis::etp && size(axis::etp) == size(axis::tp)) axes = axis::tp;
    if ((axes == axis::etp || axes == axis::ep) && size(axes) == 1) return alone();
    const auto it = groups_.find(axes);
    if (it == groups_.end()) throw LogicError("the mesh has no communicator for " + axes_name(axes));
    return it->second;
}

void Mesh::connect(NcclWorld& nccl, const NcclCtas& ctas) {
    nccl_ = &nccl;
    ctas_ = ctas;
    const auto connect_group = [&](unsigned axes) {
        const bool state = axes == axis::fsdp || axes == axis::dp_replicate || axes == axis::efsdp;
        if (size(axes) > 1) groups_.at(axes).connect(nccl, state ? ctas.state : ctas.others);
    };
    for (const unsigned axes : carrying_axes) connect_group(axes);
    if (size(axis::fsdp) > 1) gradient_reduction_->connect(nccl, ctas.state);
    if (!expert_gradient_reduction_) return;
    for (const unsigned axes : carrying_expert_axes) connect_group(axes);
    if (size(axis::efsdp) > 1) expert_gradient_reduction_->connect(nccl, ctas.state);
}

void Mesh::connect(Communicator& part) const {
    if (nccl_) part.connect(*nccl_, ctas_.others);
}

void Mesh::observe(CommunicationObserver* observer) {
    for (auto& [axes, communicator] : groups_) communicator.observe(observer);
    gradient_reduction_->observe(observer);
    if (expert_gradient_reduction_) expert_gradient_reduction_->observe(observer);
}

const Mesh& mesh_of_one() {
    static const Mesh mesh(Communicator::self(), {});
    return mesh;
}

}  // namespace coeus
