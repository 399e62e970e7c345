// SPDX-License-Identifier: Apache-2.0
#include "coeus/predict/rates.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace coeus {

namespace {

// y at x of a line through two points in log(x) and log(y).
double between(double x, double x0, double y0, double x1, double y1) {
    const double share = std::log(x / x0) / std::log(x1 / x0);
    return y0 * std::pow(y1 / y0, share);
}

// The value at `at`, from points by ascending position. Beyond the ends it is that of the end.
double on_curve(const std::vector<std::pair<double, double>>& points, double at) {
    const auto after = std::ranges::find_if(points, [&](const auto& point) { return point.first >= at; });
    if (after == points.begin()) return points.front().second;
    if (after == points.end()) return points.back().second;
    const auto before = std::prev(after);
    return between(at, before->first, before->second, after->first, after->second);
}

bool is_message(const std::string& operation) {
    return operation == "send_receive" || operation == "peer_copy";
}

// The curve of an operation within a node. Copies without one are as fast as messages.
const BandwidthCurve* curve_of(const MachineFile::Level& level, const std::string& operation) {
    const auto find = [&](const std::string& name) {
        const auto found = level.bandwidth.find(name);
        return found == level.bandwidth.end() ? nullptr : &found->second;
    };
    if (operation == "peer_copy")
        if (const BandwidthCurve* const copies = find("copy")) return copies;
    return find(is_message(operation) ? "message" : operation);
}

// Bytes over the bus for each byte of the operand.
double bus_share(const std::string& operation, int ranks) {
    if (is_message(operation)) return 1;
    return (operation == "all_reduce" ? 2.0 : 1.0) * double(ranks - 1) / double(ranks);
}

bool is_product(const std::string& kernel) {
    return kernel.find("gemm") != std::string::npos;
}

bool is_attention(const std::string& kernel) {
    return kernel == "attention" || kernel == "merge_attention" || kernel == "attention_backward";
}

// What kernels beside that of a call move, as a call of its own.
Call moved_beside(const Call& call) {
    Call beside;
    beside.kernel = "add";
    beside.bytes = call.more_bytes;
    return beside;
}

std::optional<double> peak_of(const MachineFile& machine, Dtype type) {
    if (is_8_bit_float(type))
        return machine.peak_of_8_bits > 0 ? std::optional(machine.peak_of_8_bits) : std::nullopt;
    const auto peak = machine.peak.find(type);
    return peak == machine.peak.end() ? std::nullopt : std::optional(peak->second);
}

}  // namespace

RankGroup group_of(const MeshShape& mesh, int rank, unsigned axes, int ranks_of_node) {
    const std::vector<int> ranks = mesh.ranks_of(rank, axes);
    std::set<int> nodes;
    for (const int other : ranks) nodes.insert(ranks_of_node > 0 ? other / ranks_of_node : 0);
    return {int(ranks.size()), int(nodes.size())};
}

// The nearest points count most: those that leave a size open are as far as the largest of the others.
std::optional<double> Rates::product_rate(const Call& call) const {
    double weights = 0, sum = 0;
    const std::string of_call = call.variant != "decoded"           ? call.variant
                                : call.kernel.ends_with("_weights") ? "expert_weights"
                                                                    : "experts";
    const auto fits = [&](const MachineFile::Products& p) {
        return p.type == call.type && p.form == of_call;
    };
    const std::string form = std::ranges::any_of(machine_.products, fits) ? of_call : "";
    for (const MachineFile::Products& p : machine_.products) {
        if (p.type != call.type || p.form != form) continue;
        double distance = 0;
        for (const auto& [of_point, size] :
             {std::pair(p.m, call.size[0]), std::pair(p.n, call.size[1]), std::pair(p.k, call.size[2])})
            if (of_point > 0 && size > 0) distance += std::pow(std::log(double(size) / of_point), 2);
        const double weight = 1 / std::max(std::sqrt(distance), 1e-6);
        weights += weight;
        sum += weight * p.flops;
    }
    if (weights == 0) return std::nullopt;
    return sum / weights;
}

std::optional<double> Rates::attention_rate(const Call& call, const std::string& kernel) const {
    const bool backward = call.kernel == "attention_backward";
    // points of the nearest width of heads
    double nearest = 0, distance = HUGE_VAL;
    std::vector<std::pair<double, double>> points;
    const auto fits = [&](const MachineFile::Attention& a) {
        return a.type == call.type && a.kernel == kernel && (backward ? a.backward : a.forward) > 0;
    };
    const double width = double(std::max<int64_t>(call.size[2], 1));
    for (const MachineFile::Attention& a : machine_.attention) {
        if (!fits(a)) continue;
        const double away = a.head_dim > 0 ? std::abs(std::log(width / a.head_dim)) : 0;
        if (away < distance) nearest = a.head_dim, distance = away;
    }
    for (const MachineFile::Attention& a : machine_.attention)
        if (fits(a) && a.head_dim == nearest)
            points.emplace_back(std::max(a.tokens, 1.0), backward ? a.backward : a.forward);
    if (points.empty()) return kernel == "own_wgmma" ? attention_rate(call, "own") : std::nullopt;
    std::ranges::sort(points);
    return on_curve(points, double(std::max<int64_t>(call.size[1], 1)));
}

std::optional<double> Rates::row_seconds(const Call& call) const {
    for (const std::string& name : {call.kernel, std::string("*")}) {
        std::vector<std::pair<double, double>> points;
        double more = 0;
        for (const MachineFile::Rows& r : machine_.rows)
            if (r.kernel == name) {
                points.emplace_back(std::max(r.bytes_per_call, 1.0), r.bytes_per_second);
                more = r.seconds;
            }
        if (points.empty()) continue;
        std::ranges::sort(points);
        return call.bytes / on_curve(points, std::max(call.bytes, 1.0)) + more;
    }
    return std::nullopt;
}

std::optional<Estimate> Rates::seconds(const Call& call) const {
    using Source = Estimate::Source;
    if (const auto exact = machine_.calls.find(call.key()); exact != machine_.calls.end())
        return Estimate{exact->second, Source::exact};
    const bool product = is_product(call.kernel), computes = product || is_attention(call.kernel);
    const auto of_peak = [this](double bytes) {
        return machine_.memory_bandwidth > 0 ? bytes / machine_.memory_bandwidth : 0;
    };
    const double of_memory = of_peak(call.bytes);
    if (!computes) {
        if (const std::optional<double> seconds = row_seconds(call)) return Estimate{*seconds, Source::rate};
        if (machine_.memory_bandwidth == 0) return std::nullopt;
        return Estimate{of_memory, Source::peak};
    }
    const double beside = product ? of_peak(call.more_bytes)
                                  : row_seconds(moved_beside(call)).value_or(of_peak(call.more_bytes));
    if (const std::optional<double> flops = product ? product_rate(call) : attention_rate(call, call.variant))
        return Estimate{beside + std::max(call.flops / *flops, of_memory), Source::rate};
    const std::optional<double> most = peak_of(machine_, call.type);
    if (!most) return std::nullopt;
    return Estimate{beside + std::max(call.flops / *most, of_memory), Source::peak};
}

std::optional<double> Rates::seconds(const std::string& operation, double bytes, RankGroup group) const {
    if (group.ranks <= 1 || bytes <= 0) return 0;
    const auto& levels = machine_.levels;
    // within a node: the innermost level that holds the group
    const int on_a_node = group.ranks / group.nodes;
    const auto inner = std::ranges::find_if(levels, [&](const MachineFile::Level& level) {
        return level.per_node == 0 && (level.ranks == 0 || level.ranks >= on_a_node);
    });
    const auto outer =
        std::ranges::find_if(levels, [](const MachineFile::Level& level) { return level.per_node > 0; });
    const double moved = bytes * bus_share(operation, group.ranks);
    double seconds = 0, latency = 0;
    if (on_a_node > 1) {
        if (inner == levels.end()) return std::nullopt;
        const BandwidthCurve* curve = curve_of(*inner, operation);
        if (const BandwidthCurve* const nvls = curve_of(*inner, operation + "_nvls"); nvls_ && nvls)
            curve = nvls;
        if (!curve) return std::nullopt;
        // below the first point, time is constant
        const double first = curve->front().first;
        seconds = moved / (on_curve(*curve, bytes) * std::min(1.0, bytes / first));
        latency = inner->alpha;  // beside what the curve has
    }
    if (group.nodes > 1) {
        if (outer == levels.end() || machine_.ranks_of_node == 0) return std::nullopt;
        const double of_a_rank = outer->per_node / machine_.ranks_of_node;
        // what each rank of the group sends to other nodes, or all of its ranks on a node together
        const double leaves = operation == "all_to_all"
                                  ? bytes * (group.ranks - on_a_node) / group.ranks / of_a_rank
                                  : moved / (of_a_rank * on_a_node);
        seconds = std::max(seconds, leaves);
        latency += is_message(operation)
                       ? outer->alpha + outer->hop
                       : outer->alpha * std::log2(group.ranks) + outer->hop * (group.nodes - 1);
    }
    return seconds + latency;
}

}  // namespace coeus
