// SPDX-License-Identifier: Apache-2.0
#include "coeus/predict/memory_advice.hpp"

#include "coeus/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace coeus {

namespace {

// Rough percentages of a step's time; only their order matters.
constexpr double cost_of_sums = 1, cost_of_operations = 2, cost_of_sharding = 3, cost_of_half_a_batch = 4,
                 cost_of_offloading = 5, cost_of_cp = 10, cost_of_tp = 15, cost_of_blocks = 30;
constexpr int most_ranks = 1 << 16;
// The search ends if twice as many ranks need more than this fraction of the memory: more ranks would not
// help.
constexpr double least_gain = 0.98;
// If more of the memory is used, no hint about free memory is given.
constexpr double most_used_to_advise = 0.75;

// Sets the accumulation so that the sequences per step stay the same; false if they do not divide evenly.
bool keep_step(EngineOptions& options, int64_t sequences) {
    const int64_t at_a_time = options.training.sequences * options.mesh.size(axis::dp);
    options.accumulation = sequences / at_a_time;
    return options.accumulation > 0 && sequences % at_a_time == 0;
}

// The present options, and those that sum gradients in each local batch. Stages of a pipeline, whose
// gradients many micro-batches add to, are not advised to.
std::vector<Alternative> with_earlier_sums(const Alternative& now) {
    std::vector<Alternative> all = {now};
    const EngineOptions& options = now.options;
    if (options.gather.gradients != Keep::all || options.mesh.pp > 1 || options.mesh.size(axis::fsdp) == 1)
        return all;
    all.push_back(now);
    all.back().options.gather.gradients = Keep::neighbours;
    all.back().cost += cost_of_sums;
    return all;
}

// The present options, and those with which less is kept for the backward.
std::vector<Alternative> with_less_kept(const Alternative& now) {
    using Mode = RecomputeOptions::Mode;
    std::vector<Alternative> all = {now};
    if (now.options.recompute.mode == Mode::nothing) {
        all.push_back(now);
        all.back().options.recompute = {.mode = Mode::operations};
        all.back().cost += cost_of_operations;
    }
    if (now.options.recompute.mode != Mode::blocks || now.options.recompute.every > 1) {
        all.push_back(now);
        all.back().options.recompute = {.mode = Mode::blocks};
        all.back().cost += cost_of_blocks;
    }
    return all;
}

// The present options, and those with state and inputs of blocks in host memory.
std::vector<Alternative> with_offloading(const Alternative& now) {
    std::vector<Alternative> all = {now};
    const StateTypes& types = now.options.types;
    // weights in 8 bits are made from masters on the device
    if (now.options.machine.backend == Backend::cpu || types.offload || types.precision.gather_in_8_bits ||
        now.options.pipeline.timetable.has_halves())
        return all;
    all.push_back(now);
    all.back().options.types.offload = true;
    all.back().cost += cost_of_offloading;
    return all;
}

bool divides(const ModelConfig& model, const EngineOptions& options) {
    const int64_t tp = options.mesh.tp, cp = options.mesh.cp;
    const bool by_heads = cp > 1 && options.exchanges.context.exchange == ContextExchange::heads;
    // a block of MX lies within the tokens of a rank
    const int64_t block = has_blocks(options.types.precision.linear) ? scale_block : 1;
    const int64_t pieces = block * (cp > 1 ? 2 * tp * cp : tp);
    const std::string refusal = model->refusal(
        {.tensor = tp, .context = cp, .expert = options.mesh.ep, .context_by_heads = by_heads});
    return refusal.empty() && options.training.seq_len % pieces == 0 &&
           options.validation.seq_len % pieces == 0;
}

// All data-parallel ranks shard parameters, except that `tp` and `cp` times as many serve these axes.
Alternative with_mesh(const Alternative& now, int tp, int cp) {
    Alternative other = now;
    MeshShape& mesh = other.options.mesh;
    mesh.dp_shard = mesh.size(axis::dp) / (tp * cp);
    mesh.dp_replicate = 1;
    mesh.tp *= tp;
    mesh.cp *= cp;
    other.cost += cost_of_sharding + cost_of_tp * std::log2(tp) + cost_of_cp * std::log2(cp);
    return other;
}

std::vector<Alternative> with_other_meshes(const ModelConfig& model, const Alternative& now) {
    std::vector<Alternative> all = {now};
    const int data = now.options.mesh.size(axis::dp);
    for (int tp = 1; tp <= data; tp *= 2)
        for (int cp = 1; tp * cp <= data; cp *= 2) {
            if (data % (tp * cp) != 0 || (tp * cp == 1 && now.options.mesh.dp_replicate == 1)) continue;
            Alternative other = with_mesh(now, tp, cp);
            if (divides(model, other.options)) all.push_back(std::move(other));
        }
    return all;
}

// Micro-batches of the present size, of half of it, of a quarter, ...
std::vector<Alternative> with_smaller_batches(const Alternative& now, int64_t sequences) {
    std::vector<Alternative> all;
    double cost = now.cost;
    for (int64_t local = now.options.training.sequences; local >= 1;
         local /= 2, cost += cost_of_half_a_batch) {
        Alternative other = now;
        other.options.training.sequences = local;
        other.cost = cost;
        const int64_t pieces = now.options.pipeline.timetable.microbatches;
        if (local % pieces != 0 || !keep_step(other.options, sequences)) continue;
        all.push_back(std::move(other));
    }
    return all;
}

// The needs of the ranks that need the most.
struct Needed {
    int64_t bytes = 0, on_host = 0;
    std::string text() const {
        return bytes_text(double(bytes)) +
               (on_host > 0 ? fmt::format(" and {} of host memory", bytes_text(double(on_host))) : "");
    }
};
Needed needed_by(const ModelConfig& model, const EngineOptions& options) {
    Needed most;
    for (const MemoryPlan& plan : plans_of_stages(model, options)) {
        most.bytes = std::max(most.bytes, plan.total());
        most.on_host = std::max(most.on_host, plan.total(MemoryPlace::host));
    }
    return most;
}

// The settings of a deck that differ between two plans, each option once.
std::vector<std::string> settings_that_change(const EngineOptions& from, const EngineOptions& to) {
    using Mode = RecomputeOptions::Mode;
    std::vector<std::string> all;
    const auto set = [&](const char* option, const auto& value) {
        all.push_back(fmt::format("{} = {}", option, value));
    };
    const auto differs = [&](const auto& a, const auto& b, const char* option) {
        if (a != b) set(option, b);
    };
    if (to.recompute.mode != from.recompute.mode || to.recompute.every != from.recompute.every ||
        to.recompute.budget != from.recompute.budget) {
        const char* mode = to.recompute.mode == Mode::nothing      ? "none"
                           : to.recompute.mode == Mode::operations ? "selective"
                           : to.recompute.mode == Mode::budget     ? "memory_budget"
                                                                   : "full";
        set("activation_checkpoint.mode", fmt::format("\"{}\"", mode));
        if (to.recompute.mode == Mode::budget)
            set("activation_checkpoint.memory_budget", to.recompute.budget);
        if (to.recompute.mode == Mode::operations) set("activation_checkpoint.selective_ac_option", "\"op\"");
    }
    differs(from.types.offload, to.types.offload, "training.enable_cpu_offload");
    if (to.gather.gradients != from.gather.gradients)
        set("parallelism.fsdp_sum_gradients", "\"local_batch\"");
    const MeshShape &before = from.mesh, &after = to.mesh;
    differs(before.tp, after.tp, "parallelism.tensor_parallel_degree");
    differs(before.cp, after.cp, "parallelism.context_parallel_degree");
    differs(before.dp_replicate, after.dp_replicate, "parallelism.data_parallel_replicate_degree");
    differs(before.dp_shard, after.dp_shard, "parallelism.data_parallel_shard_degree");
    const int64_t local = to.training.sequences;
    if (local != from.training.sequences) {
        set("training.local_batch_size", local);
        if (after.pp > 1)
            set("parallelism.pipeline_parallel_microbatch_size", local / to.pipeline.timetable.microbatches);
    }
    if (local != from.training.sequences || to.accumulation != from.accumulation ||
        to.step_sequences() != from.step_sequences())
        set("training.global_batch_size", to.step_sequences());
    return all;
}

// All ways to train `sequences` sequences per step on the ranks of `options`, the cheapest first.
std::vector<Alternative> ways_to_run(const ModelConfig& model, const EngineOptions& options,
                                     int64_t sequences) {
    std::vector<Alternative> all;
    for (const Alternative& summed : with_earlier_sums({.options = options}))
        for (const Alternative& kept : with_less_kept(summed))
            for (const Alternative& offloaded : with_offloading(kept))
                for (const Alternative& divided : with_other_meshes(model, offloaded))
                    for (Alternative& batched : with_smaller_batches(divided, sequences))
                        all.push_back(std::move(batched));
    std::ranges::stable_sort(all, {}, &Alternative::cost);
    return all;
}

}  // namespace

std::vector<Alternative> alternatives(const ModelConfig& model, const EngineOptions& options) {
    std::vector<Alternative> all = ways_to_run(model, options, options.step_sequences());
    std::erase_if(all, [](const Alternative& way) { return way.cost == 0; });
    for (Alternative& way : all) way.says = settings_that_change(options, way.options);
    return all;
}

std::string memory_advice(const ModelConfig& model, const EngineOptions& options, int64_t limit_bytes,
                          int64_t host_limit_bytes, const AdviceCheck& holds) {
    int64_t least = needed_by(model, options).bytes;
    // Finds the first way that fits and that a run would accept.
    const auto first_that_fits = [&](std::vector<Alternative> ways) -> std::optional<std::string> {
        for (Alternative& way : ways) {
            const Needed needed = needed_by(model, way.options);
            if (needed.on_host <= host_limit_bytes) least = std::min(least, needed.bytes);
            if (needed.bytes > limit_bytes || needed.on_host > host_limit_bytes) continue;
            way.says = settings_that_change(options, way.options);
            if (holds && !holds(way)) continue;
            const bool same_ranks = way.options.mesh.ranks() == options.mesh.ranks();
            return fmt::format("{}{}{} {}",
                               same_ranks ? "The cheapest change that fits: "
                                          : fmt::format("{} ranks would do: with ", way.options.mesh.ranks()),
                               join(way.says, ", "), same_ranks ? ", which needs" : " each needs",
                               needed.text());
        }
        return std::nullopt;
    };
    if (const auto advice = first_that_fits(alternatives(model, options))) return *advice;
    const int64_t least_on_these_ranks = least;
    // more shards; more sequences per step only if those of the deck cannot be divided
    EngineOptions more = options;
    for (int64_t before = least; more.mesh.ranks() <= most_ranks / 2; before = least) {
        more.mesh.dp_shard *= 2;
        if (const auto advice = first_that_fits(ways_to_run(model, more, options.step_sequences())))
            return *advice;
        more.accumulation = 1;
        more.training.sequences = options.pipeline.timetable.microbatches;
        if (more.step_sequences() > options.step_sequences())
            if (const auto advice = first_that_fits(ways_to_run(model, more, more.step_sequences())))
                return *advice;
        more.training.sequences = options.training.sequences;
        more.accumulation = options.accumulation;
        if (double(least) > least_gain * double(before)) break;  // the rest is not divided among ranks
    }
    return fmt::format(
        "No change of the deck makes this model fit; the smallest configuration needs {}. Choose a smaller "
        "model.flavor, or devices with more memory",
        bytes_text(double(least_on_these_ranks)));
}

std::string spare_memory_advice(const ModelConfig& model, const EngineOptions& options, int64_t limit_bytes,
                                const AdviceCheck& holds) {
    using Mode = RecomputeOptions::Mode;
    const Needed now = needed_by(model, options);
    if (options.recompute.mode == Mode::nothing ||
        double(now.bytes) > most_used_to_advise * double(limit_bytes))
        return "";
    std::vector<RecomputeOptions> ways = {{.mode = Mode::nothing}};
    if (options.recompute.mode != Mode::operations) {
        ways.push_back({.mode = Mode::operations});
        // The bytes grow with the budget almost in proportion. A plan with a budget takes long, so only the
        // largest tenth that should fit and the one below it are tried.
        const auto bytes_with = [&](Mode mode) {
            EngineOptions other = options;
            other.recompute = {.mode = mode};
            return double(needed_by(model, other).bytes);
        };
        const double full = bytes_with(Mode::blocks), growth = bytes_with(Mode::nothing) - full;
        const double fitting = growth > 0 ? (double(limit_bytes) - full) / growth : 1;
        const int tenths = int(std::clamp(10 * fitting, 0.0, 9.0));
        for (int tenth = tenths; tenth > std::max(0, tenths - 2); --tenth)
            ways.push_back({.mode = Mode::budget, .budget = double(tenth) / 10});
    }
    for (const RecomputeOptions& way : ways) {
        Alternative faster = {.options = options};
        faster.options.recompute = way;
        faster.says = settings_that_change(options, faster.options);
        const Needed needed = needed_by(model, faster.options);
        // a budget with less memory recomputes more
        if (way.mode == Mode::budget && needed.bytes <= now.bytes) continue;
        if (needed.bytes > limit_bytes || (holds && !holds(faster))) continue;
        return fmt::format("the run uses {} of {}. With {} it recomputes {} and needs {}",
                           bytes_text(double(now.bytes)), bytes_text(double(limit_bytes)),
                           join(faster.says, ", "), way.mode == Mode::nothing ? "nothing" : "less",
                           needed.text());
    }
    return "";
}

}  // namespace coeus
