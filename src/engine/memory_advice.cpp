// SPDX-License-Identifier: Apache-2.0
#include "coeus/engine/memory_advice.hpp"

#include "coeus/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coeus {

namespace {

// Percent of a step's time, roughly: what matters is their order.
constexpr double cost_of_operations = 2, cost_of_sharding = 3, cost_of_half_a_batch = 4,
                 cost_of_offloading = 5, cost_of_cp = 10, cost_of_tp = 15, cost_of_blocks = 30;
constexpr int most_ranks = 1 << 16;

// Sequences of a step, which no alternative changes.
int64_t step_sequences(const EngineOptions& options) {
    return options.training.sequences * options.mesh.size(axis::dp) * options.accumulation;
}

// Sets the accumulation so that a step stays what it is; false where that does not come out even.
bool keep_step(EngineOptions& options, int64_t sequences) {
    const int64_t at_a_time = options.training.sequences * options.mesh.size(axis::dp);
    options.accumulation = sequences / at_a_time;
    return options.accumulation > 0 && sequences % at_a_time == 0;
}

// Less is kept for the backward than now.
std::vector<Alternative> with_less_kept(const Alternative& now) {
    using Mode = RecomputeOptions::Mode;
    std::vector<Alternative> all = {now};
    if (now.options.recompute.mode == Mode::nothing) {
        all.push_back(now);
        all.back().options.recompute = {.mode = Mode::operations};
        all.back().cost += cost_of_operations;
        all.back().says = {R"(activation_checkpoint.mode = "selective")",
                           R"(activation_checkpoint.selective_ac_option = "op")"};
    }
    if (now.options.recompute.mode != Mode::blocks || now.options.recompute.every > 1) {
        all.push_back(now);
        all.back().options.recompute = {.mode = Mode::blocks};
        all.back().cost += cost_of_blocks;
        all.back().says.push_back(R"(activation_checkpoint.mode = "full")");
    }
    return all;
}

// State and inputs of blocks are in the memory of a GPU's host.
std::vector<Alternative> with_offloading(const Alternative& now) {
    std::vector<Alternative> all = {now};
    if (now.options.backend == Backend::cpu || now.options.types.offload) return all;
    all.push_back(now);
    all.back().options.types.offload = true;
    all.back().cost += cost_of_offloading;
    all.back().says.push_back("training.enable_cpu_offload = true");
    return all;
}

bool divides(const DecoderConfig& model, const EngineOptions& options) {
    const int64_t tp = options.mesh.tp, cp = options.mesh.cp;
    const bool by_heads = cp > 1 && options.exchanges.context.exchange == ContextExchange::heads;
    const int64_t heads = by_heads ? tp * cp : tp, pieces = cp > 1 ? 2 * tp * cp : tp;
    return model.attention.heads % heads == 0 && model.attention.kv_heads % heads == 0 &&
           options.training.seq_len % pieces == 0 && options.validation.seq_len % pieces == 0;
}

// The ranks of the data axes, all sharding now: `tp` and `cp` times as many for these axes.
Alternative with_mesh(const Alternative& now, int tp, int cp) {
    Alternative other = now;
    MeshShape& mesh = other.options.mesh;
    mesh.dp_shard = mesh.size(axis::dp) / (tp * cp);
    mesh.dp_replicate = 1;
    mesh.tp *= tp;
    mesh.cp *= cp;
    other.cost += cost_of_sharding + cost_of_tp * std::log2(tp) + cost_of_cp * std::log2(cp);
    if (tp > 1) other.says.push_back(fmt::format("parallelism.tensor_parallel_degree = {}", mesh.tp));
    if (cp > 1) other.says.push_back(fmt::format("parallelism.context_parallel_degree = {}", mesh.cp));
    if (now.options.mesh.dp_replicate > 1)
        other.says.push_back("parallelism.data_parallel_replicate_degree = 1");
    other.says.push_back(fmt::format("parallelism.data_parallel_shard_degree = {}", mesh.dp_shard));
    return other;
}

std::vector<Alternative> with_other_meshes(const DecoderConfig& model, const Alternative& now) {
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

// Micro-batches of half as many sequences, of a quarter, ...
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
        if (local < now.options.training.sequences) {
            other.says.push_back(fmt::format("training.local_batch_size = {}", local));
            if (now.options.mesh.pp > 1)
                other.says.push_back(
                    fmt::format("parallelism.pipeline_parallel_microbatch_size = {}", local / pieces));
        }
        if (!other.says.empty())
            other.says.push_back(fmt::format("training.global_batch_size = {}", sequences));
        all.push_back(other);
    }
    return all;
}

// Of the ranks that need most.
struct Needed {
    int64_t bytes = 0, on_host = 0;
    std::string text() const {
        return bytes_text(double(bytes)) +
               (on_host > 0 ? fmt::format(" and {} of host memory", bytes_text(double(on_host))) : "");
    }
};
Needed needed_by(const DecoderConfig& model, const EngineOptions& options) {
    Needed most;
    for (const MemoryPlan& plan : plans_of_stages(model, options)) {
        most.bytes = std::max(most.bytes, plan.total());
        most.on_host = std::max(most.on_host, plan.total(MemoryPlace::host));
    }
    return most;
}

}  // namespace

std::vector<Alternative> alternatives(const DecoderConfig& model, const EngineOptions& options) {
    std::vector<Alternative> all;
    for (const Alternative& kept : with_less_kept({.options = options}))
        for (const Alternative& offloaded : with_offloading(kept))
            for (const Alternative& divided : with_other_meshes(model, offloaded))
                for (Alternative& batched : with_smaller_batches(divided, step_sequences(options)))
                    if (batched.cost > 0) all.push_back(std::move(batched));
    for (Alternative& alternative : all) {
        // a step of as many sequences needs no word where neither its parts nor the ranks that share it
        // change
        const EngineOptions& o = alternative.options;
        if (o.accumulation == options.accumulation && o.training.sequences == options.training.sequences)
            alternative.says.pop_back();
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Alternative& a, const Alternative& b) { return a.cost < b.cost; });
    return all;
}

std::string memory_advice(const DecoderConfig& model, const EngineOptions& options, int64_t limit_bytes,
                          int64_t host_limit_bytes) {
    const auto fits = [&](const Needed& needed) {
        return needed.bytes <= limit_bytes && needed.on_host <= host_limit_bytes;
    };
    Alternative smallest = {.options = options};
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Alternative& alternative : alternatives(model, options)) {
        const Needed needed = needed_by(model, alternative.options);
        if (fits(needed))
            return fmt::format("The cheapest change that fits: {}, which needs {}",
                               join(alternative.says, ", "), needed.text());
        if (needed.bytes >= least || needed.on_host > host_limit_bytes) continue;
        least = needed.bytes;
        smallest = alternative;
    }
    // shards of more ranks, each with one sequence at a time
    EngineOptions more = smallest.options;
    while (more.mesh.ranks() < most_ranks) {
        more.mesh.dp_shard *= 2;
        if (const Needed needed = needed_by(model, more); fits(needed))
            return fmt::format(
                "{} ranks would do: with parallelism.data_parallel_shard_degree = {}{} each needs {}",
                more.mesh.ranks(), more.mesh.dp_shard,
                smallest.says.empty() ? "" : ", " + join(smallest.says, ", "), needed.text());
    }
    return fmt::format(
        "No change of the deck fits this model in here; the smallest needs {}. Lower "
        "training.seq_len, or choose a smaller model.flavor",
        bytes_text(double(least)));
}

}  // namespace coeus
