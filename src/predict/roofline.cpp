// SPDX-License-Identifier: Apache-2.0
#include "coeus/predict/roofline.hpp"

#include "coeus/base/text.hpp"
#include "coeus/pipeline/simulate.hpp"
#include "coeus/predict/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace coeus {

namespace {

EngineOptions with_local_batches(EngineOptions options, int64_t number) {
    options.accumulation = number;
    return options;
}

// GPUs of a node copy tokens into each other's memory.
EngineOptions with_copies(EngineOptions options, const MachineFile& machine) {
    options.exchanges.copy_tokens =
        group_of(options.mesh, options.rank, axis::tp, machine.ranks_of_node).nodes == 1;
    return options;
}

// Seconds of a local batch at the machine's peak.
std::optional<double> seconds_at_peak(const ModelConfig& config, const EngineOptions& options,
                                      const MachineFile& machine, double tokens) {
    const auto peak = machine.peak.find(options.types.compute);
    if (peak == machine.peak.end() || options.types.precision.any() || options.mesh.pp > 1)
        return std::nullopt;
    return config->flops_per_token(options.training.seq_len) * tokens / peak->second;
}

constexpr double printed = 0.05e-3;  // seconds

double ms(double seconds) {
    return std::abs(seconds) < printed ? 0 : 1e3 * seconds;
}

// "measured, in part on another card"
std::string rates_text(const MachineFile& machine) {
    const std::string kind = text_of(machine.kind);
    return machine.note.empty() ? kind : kind + ", " + machine.note;
}

// For how long a rank of a pipeline waits for others in each local batch, if all actions of a kind take as
// long as its own. `one` and `two` are steps with as many local batches.
double stage_waits_of(const EngineOptions& options, const Played& one, const Played& two) {
    const Timetable& table = options.pipeline.timetable;
    if (options.mesh.pp == 1) return 0;
    const int rank = options.mesh.coordinate(options.rank, axis::pp);
    std::map<ActionKind, int64_t> number;
    for (const Cell& cell : table.rows[size_t(rank)])
        for (int i = 0; i < cell.size(); ++i) ++number[cell[i].kind];
    const auto nanoseconds = [&](ActionKind kind) {
        const auto found = two.actions.find(kind);
        if (found == two.actions.end()) return int64_t(0);
        return int64_t(std::llround(1e9 * (found->second - one.actions.at(kind)) / double(number.at(kind))));
    };
    CostModel cost = {.forward = nanoseconds(ActionKind::forward),
                      .backward = nanoseconds(ActionKind::backward),
                      .backward_input = nanoseconds(ActionKind::backward_input),
                      .backward_weight = nanoseconds(ActionKind::backward_weight)};
    // kinds that only other ranks have
    if (cost.backward == 0) cost.backward = cost.backward_input + cost.backward_weight;
    if (cost.backward_input == 0) cost.backward_input = cost.backward - cost.backward / 2;
    if (cost.backward_weight == 0) cost.backward_weight = cost.backward / 2;
    const Simulation simulation = simulate(table, cost);
    return 1e-9 * double(simulation.makespan - simulation.busy[size_t(rank)]);
}

// A step whose tensor-parallel ranks exchange tokens in the other way.
OtherTokens other_tokens_of(const ModelConfig& config, EngineOptions options, const Rates& rates,
                            LaunchOrder order) {
    options.exchanges.overlap_tokens = !options.exchanges.overlap_tokens;
    const auto played = [&](int64_t local_batches) {
        return play(record_step(config, with_local_batches(options, local_batches)), rates, options.graphs,
                    order);
    };
    const Played one = played(1), two = played(2);
    const double local_batch = two.total - one.total;
    return {.overlapped = options.exchanges.overlap_tokens,
            .step = double(options.accumulation) * (local_batch + stage_waits_of(options, one, two)) +
                    one.total - local_batch};
}

// By purpose. `one` and `two` are steps with as many local batches.
std::vector<CommunicationRow> communication_of(const Played& one, const Played& two) {
    std::vector<CommunicationRow> rows;
    for (size_t purpose = 0; purpose < num_purposes; ++purpose) {
        const Communication &first = one.communication[purpose], &both = two.communication[purpose];
        if (both.total > 0)
            rows.push_back({.name = name_of(Purpose(purpose)),
                            .total = both.total - first.total,
                            .exposed = both.exposed - first.exposed,
                            .total_once = 2 * first.total - both.total,
                            .exposed_once = 2 * first.exposed - both.exposed});
    }
    return rows;
}

// The stages of a pipeline rank, with the kind of each segment.
std::string content_of(const ModelConfig& config, const EngineOptions& options, int rank) {
    const std::vector<int64_t> kinds = config->kinds_of_segments();
    std::string text;
    if (options.mesh.pp == 1) return text;
    for (const int stage : options.pipeline.timetable.placement.stages_of(rank)) {
        const ModelPart& part = options.pipeline.parts[size_t(stage)];
        for (size_t segment = part.first; segment < part.last; ++segment)
            text += fmt::format("{} ", kinds[segment]);
        text += ";";
    }
    return text;
}

// "one after the other"
const char* text_of(LaunchOrder order) {
    return order == LaunchOrder::serial ? "one after the other" : "overlapped";
}

}  // namespace

std::optional<double> Roofline::mfu_of_local_batch() const {
    if (!at_peak) return std::nullopt;
    return *at_peak / local_batch;
}

std::optional<double> Roofline::mfu_of_step() const {
    if (!at_peak) return std::nullopt;
    return double(local_batches) * *at_peak / step();
}

LaunchOrder planned_order(const MachineFile& machine, const EngineOptions& options, int64_t max_ctas) {
    if (machine.nccl == 0) return LaunchOrder::overlapped;
    return launch_choice({.nccl = machine.nccl,
                          .driver = machine.driver,
                          .graphs = options.graphs,
                          .communicators = most_carrying_communicators(options.mesh),
                          .max_ctas = max_ctas,
                          .multiprocessors = machine.overlap ? int(machine.overlap->sms) : 0})
        .order;
}

// A step of one local batch, and how much longer one of two takes.
Roofline roofline_of(const ModelConfig& config, const EngineOptions& options, const MachineFile& machine,
                     LaunchOrder order, bool in_tf32) {
    const EngineOptions planned = with_copies(options, machine);
    const Rates rates(machine, planned.machine.nvls);
    const Recording one = record_step(config, with_local_batches(planned, 1)),
                    two = record_step(config, with_local_batches(planned, 2));
    const Played first = play(one, rates, planned.graphs, order),
                 both = play(two, rates, planned.graphs, order);
    Roofline all;
    for (const auto& [name, seconds] : both.seconds) {
        const double of_first = first.seconds.contains(name) ? first.seconds.at(name) : 0;
        if (seconds > 0) all.rows.push_back({name, seconds - of_first, 2 * of_first - seconds});
    }
    const double for_stages = stage_waits_of(planned, first, both);
    if (for_stages > 0) all.rows.push_back({stage_waits, for_stages, 0});
    std::ranges::stable_sort(all.rows, {}, [](const RooflineRow& row) { return class_order(row.name); });
    all.local_batch = both.total - first.total + for_stages;
    all.once = 2 * first.total - both.total;
    all.pipeline_rank = planned.mesh.coordinate(planned.rank, axis::pp);
    all.order = order;
    all.communication = communication_of(first, both);
    if (carrying_communicators(planned.mesh) > 1) {
        const LaunchOrder other =
            order == LaunchOrder::serial ? LaunchOrder::overlapped : LaunchOrder::serial;
        const Played of_one = play(one, rates, planned.graphs, other),
                     of_two = play(two, rates, planned.graphs, other);
        all.other = {.order = other,
                     .local_batch = of_two.total - of_one.total + stage_waits_of(planned, of_one, of_two),
                     .once = 2 * of_one.total - of_two.total};
        for (const CommunicationRow& row : communication_of(of_one, of_two)) {
            all.other->exposed += row.exposed;
            all.other->exposed_once += row.exposed_once;
        }
    }
    if (planned.mesh.tp > 1) all.other_tokens = other_tokens_of(config, planned, rates, order);
    all.local_batches = planned.accumulation;
    all.tokens = double(planned.training.count()) / planned.mesh.size(axis::pp | axis::cp | axis::tp);
    all.in_tf32 = in_tf32;
    if (!in_tf32) all.at_peak = seconds_at_peak(config, planned, machine, all.tokens);
    all.launches = two.launches() - one.launches();
    all.launches_once = one.launches() - all.launches;
    const int64_t beside = two.launches_beside() - one.launches_beside();
    // the local batches between the first and the last share a graph
    if (planned.graphs)
        all.graph_nodes = std::min<int64_t>(planned.accumulation, 3) * (all.launches + beside) +
                          all.launches_once + one.launches_beside() - beside;
    all.by_data_sheet.assign(both.at_peak.begin(), both.at_peak.end());
    all.left_out.assign(both.left_out.begin(), both.left_out.end());
    return all;
}

Roofline roofline_of_slowest(const ModelConfig& config, const EngineOptions& options,
                             const MachineFile& machine, LaunchOrder order, bool in_tf32) {
    Roofline slowest;
    std::vector<double> steps;
    EngineOptions of_rank = options;
    std::map<std::string, double> steps_of_content;  // ranks with equal stages take equally long
    for (int rank = 0; rank < options.mesh.pp; ++rank) {
        const auto [known, is_new] = steps_of_content.try_emplace(content_of(config, options, rank));
        if (!is_new) {
            steps.push_back(known->second);
            continue;
        }
        of_rank.rank = rank * (options.mesh.ranks() / options.mesh.pp);
        Roofline roofline = roofline_of(config, of_rank, machine, order, in_tf32);
        steps.push_back(known->second = roofline.step());
        if (rank == 0 || roofline.step() > slowest.step()) slowest = std::move(roofline);
    }
    slowest.steps_of_ranks = std::move(steps);
    return slowest;
}

// A table by purpose, and what the other order of operations would give.
std::string Roofline::communication_text() const {
    if (communication.empty()) return "";
    std::string text =
        fmt::format("\n  {:<32}{:>18}{:>9}{:>14}{:>9}", fmt::format("communication, {}", text_of(order)),
                    "per local batch", "exposed", "once a step", "exposed");
    CommunicationRow sum = {.name = "sum"};
    const auto line = [&](const CommunicationRow& row) {
        text += fmt::format("\n  {:<32}{:>18.1f}{:>9.1f}{:>14.1f}{:>9.1f}", row.name, ms(row.total),
                            ms(row.exposed), ms(row.total_once), ms(row.exposed_once));
    };
    for (const CommunicationRow& row : communication) {
        sum.total += row.total;
        sum.exposed += row.exposed;
        sum.total_once += row.total_once;
        sum.exposed_once += row.exposed_once;
        if (std::max(row.total, row.total_once) >= printed) line(row);
    }
    line(sum);
    if (other)
        text += fmt::format(
            "\n  {}: {:.1f} ms exposed per local batch, {:.1f} once; a local batch takes {:.1f} ms, "
            "a step {:.1f} ms",
            text_of(other->order), ms(other->exposed), ms(other->exposed_once), ms(other->local_batch),
            ms(double(local_batches) * other->local_batch + other->once));
    return text;
}

std::string Roofline::pipeline_text() const {
    const char* const waits = "waits for other stages: as if each of them took as long as its own";
    if (steps_of_ranks.empty()) return fmt::format("  pipeline rank {}; {}", pipeline_rank, waits);
    std::vector<std::string> steps;
    for (const double seconds : steps_of_ranks) steps.push_back(fmt::format("{:.1f}", ms(seconds)));
    return fmt::format("  pipeline rank {}, the slowest; {}\n  a step by each pipeline rank: {} ms",
                       pipeline_rank, waits, join(steps, ", "));
}

std::string Roofline::text(const MachineFile& machine, const MeshShape& mesh) const {
    std::string text = fmt::format("Roofline by the rates of {} ({}), {}:\n  {:<32}{:>18}{:>9}{:>14}",
                                   machine.name, machine.title, rates_text(machine), "milliseconds",
                                   "per local batch", "share", "once a step");
    const auto line = [&](const std::string& name, double of_batch, double of_step) {
        text += fmt::format("\n  {:<32}{:>18.1f}{:>7.1f} %{:>14}", name, ms(of_batch),
                            100 * ms(of_batch) / ms(local_batch),
                            of_step < printed ? "" : fmt::format("{:.1f}", ms(of_step)));
    };
    for (const RooflineRow& row : rows)
        if (std::max(row.local_batch, row.once) >= printed) line(row.name, row.local_batch, row.once);
    line("sum", local_batch, once);
    const auto mfu_text = [](const std::optional<double>& mfu) {
        return mfu ? fmt::format(", MFU at most {:.1f} %", 100 * *mfu) : std::string();
    };
    text += fmt::format("\n  local batch: {:.1f} ms, {} tokens/s per rank{}", ms(local_batch),
                        with_commas(int64_t(tokens / local_batch)), mfu_text(mfu_of_local_batch()));
    text +=
        fmt::format("\n  step of {} local batch{}: {:.1f} ms, {} tokens/s per rank{}",
                    with_commas(local_batches), local_batches == 1 ? "" : "es", ms(step()),
                    with_commas(int64_t(double(local_batches) * tokens / step())), mfu_text(mfu_of_step()));
    text += fmt::format("\n  launches: {} per local batch, {} per step", with_commas(launches),
                        with_commas(local_batches * launches + launches_once));
    if (graph_nodes > 0)
        text += fmt::format("; nodes of the step's CUDA graphs: {}", with_commas(graph_nodes));
    text += communication_text();
    if (other_tokens)
        text += fmt::format("\n  {}: a step would take {:.1f} ms",
                            other_tokens->overlapped
                                ? "asynchronous tensor parallelism (parallelism.enable_async_tensor_parallel)"
                                : "without parallelism.enable_async_tensor_parallel",
                            ms(other_tokens->step));
    if (in_tf32) text += "\n  products in TF32: no rate is known; their time is that of products in float32";
    if (!by_data_sheet.empty())
        text += fmt::format("\n  at the peaks of the data sheet, which no kernel reaches: {}",
                            join(by_data_sheet, "; "));
    if (!left_out.empty())
        text += fmt::format("\n  left out, since the machine file says nothing about it: {}",
                            join(left_out, "; "));
    if (mesh.pp > 1) text += "\n" + pipeline_text();
    return text;
}

}  // namespace coeus
