// SPDX-License-Identifier: Apache-2.0
#include "coeus/predict/roofline.hpp"

#include "coeus/base/text.hpp"
#include "timeline.hpp"

#include <algorithm>

namespace coeus {

namespace {

EngineOptions with_local_batches(EngineOptions options, int64_t number) {
    options.accumulation = number;
    return options;
}

// Seconds of a local batch at the machine's peak.
std::optional<double> seconds_at_peak(const DecoderConfig& config, const EngineOptions& options,
                                      const MachineFile& machine, double tokens) {
    const auto peak = machine.peak.find(options.types.compute);
    if (peak == machine.peak.end() || options.types.quantize.any() || options.mesh.pp > 1)
        return std::nullopt;
    return config.flops_per_token(options.training.seq_len) * tokens / peak->second;
}

// "measured, in part on another card"
std::string rates_text(const MachineFile& machine) {
    const std::string kind = text_of(machine.kind);
    return machine.note.empty() ? kind : kind + ", " + machine.note;
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

// A step of one local batch, and how much longer one of two takes.
Roofline roofline_of(const DecoderConfig& config, const EngineOptions& options, const MachineFile& machine,
                     bool in_tf32) {
    const Rates rates(machine, options.nvls);
    const Recording one = record_step(config, with_local_batches(options, 1)),
                    two = record_step(config, with_local_batches(options, 2));
    const Played first = play(one, rates, options.graphs), both = play(two, rates, options.graphs);
    Roofline all;
    for (const auto& [name, seconds] : both.seconds) {
        const double of_first = first.seconds.contains(name) ? first.seconds.at(name) : 0;
        if (seconds > 0) all.rows.push_back({name, seconds - of_first, 2 * of_first - seconds});
    }
    std::ranges::stable_sort(all.rows, {}, [](const RooflineRow& row) { return class_order(row.name); });
    all.local_batch = both.total - first.total;
    all.once = 2 * first.total - both.total;
    all.local_batches = options.accumulation;
    all.tokens = double(options.training.count()) / options.mesh.size(axis::pp | axis::cp | axis::tp);
    all.in_tf32 = in_tf32;
    if (!in_tf32) all.at_peak = seconds_at_peak(config, options, machine, all.tokens);
    all.launches = two.launches() - one.launches();
    all.launches_once = one.launches() - all.launches;
    const int64_t communications = two.communications() - one.communications();
    // the local batches between the first and the last share a graph
    if (options.graphs)
        all.graph_nodes = std::min<int64_t>(options.accumulation, 3) * (all.launches + communications) +
                          all.launches_once + one.communications() - communications;
    all.by_data_sheet.assign(both.at_peak.begin(), both.at_peak.end());
    all.left_out.assign(both.left_out.begin(), both.left_out.end());
    return all;
}

std::string Roofline::text(const MachineFile& machine, const MeshShape& mesh) const {
    constexpr double printed = 0.05e-3;
    const auto ms = [](double seconds) { return seconds < printed ? 0 : 1e3 * seconds; };
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
    if (in_tf32) text += "\n  products in TF32: no rate is known; their time is that of products in float32";
    if (!by_data_sheet.empty())
        text += fmt::format("\n  at the peaks of the data sheet, which no kernel reaches: {}",
                            join(by_data_sheet, "; "));
    if (!left_out.empty())
        text += fmt::format("\n  left out, since the machine file says nothing about it: {}",
                            join(left_out, "; "));
    if (mesh.pp > 1) text += "\n  without waits for other pipeline stages; those of the first pipeline rank";
    return text;
}

}  // namespace coeus
