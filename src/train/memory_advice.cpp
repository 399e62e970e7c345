// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/memory_advice.hpp"

#include "coeus/base/text.hpp"

#include <algorithm>
#include <limits>

namespace coeus {

namespace {

// Percent of a step's time, roughly: what matters is their order.
constexpr double cost_of_operations = 2, cost_of_sharding = 3, cost_of_half_a_batch = 4, cost_of_tp = 15,
                 cost_of_blocks = 30;
constexpr int most_ranks = 1 << 16;

// Sequences of a step, which no alternative changes.
int64_t step_sequences(const EngineOptions& options) {
    return options.training.sequences * options.mesh.size(dp) * options.micro_batches;
}

// Sets micro_batches so that a step stays what it is; false where that does not come out even.
bool keep_step(EngineOptions& options, int64_t sequences) {
    const int64_t at_a_time = options.training.sequences * options.mesh.size(dp);
    options.micro_batches = sequences / at_a_time;
    return options.micro_batches > 0 && sequences % at_a_time == 0;
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

// The axes of the data divided otherwise among as many ranks.
std::vector<Alternative> with_other_meshes(const DecoderConfig& model, const Alternative& now) {
    std::vector<Alternative> all = {now};
    const MeshShape& mesh = now.options.mesh;
    const int data = mesh.size(dp);
    double cost = now.cost;
    for (int split = 1; split <= data; split *= 2, cost += cost_of_tp) {
        const int64_t degree = int64_t(mesh.tp) * split;
        if (data % split != 0 || model.heads % degree != 0 || model.kv_heads % degree != 0 ||
            now.options.training.seq_len % degree != 0)
            break;
        Alternative other = now;
        other.cost = cost + cost_of_sharding;
        other.options.mesh.tp = int(degree);
        other.options.mesh.dp_replicate = 1;
        other.options.mesh.dp_shard = data / split;
        if (other.options.mesh.dp_shard == mesh.dp_shard && split == 1) continue;
        if (split > 1) other.says.push_back(fmt::format("parallelism.tensor_parallel_degree = {}", degree));
        if (mesh.dp_replicate > 1) other.says.push_back("parallelism.data_parallel_replicate_degree = 1");
        other.says.push_back(
            fmt::format("parallelism.data_parallel_shard_degree = {}", other.options.mesh.dp_shard));
        all.push_back(other);
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
        if (!keep_step(other.options, sequences)) continue;
        if (local < now.options.training.sequences)
            other.says.push_back(fmt::format("training.local_batch_size = {}", local));
        if (!other.says.empty())
            other.says.push_back(fmt::format("training.global_batch_size = {}", sequences));
        all.push_back(other);
    }
    return all;
}

int64_t bytes_of(const DecoderConfig& model, const EngineOptions& options) {
    return Engine(model, options).plan().total();
}

}  // namespace

std::vector<Alternative> alternatives(const DecoderConfig& model, const EngineOptions& options) {
    std::vector<Alternative> all;
    for (const Alternative& kept : with_less_kept({.options = options}))
        for (const Alternative& divided : with_other_meshes(model, kept))
            for (Alternative& batched : with_smaller_batches(divided, step_sequences(options)))
                if (batched.cost > 0) all.push_back(std::move(batched));
    for (Alternative& alternative : all) {
        // a step of as many sequences needs no word where neither its parts nor the ranks that share it
        // change
        const EngineOptions& o = alternative.options;
        if (o.micro_batches == options.micro_batches && o.training.sequences == options.training.sequences)
            alternative.says.pop_back();
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Alternative& a, const Alternative& b) { return a.cost < b.cost; });
    return all;
}

std::string memory_advice(const DecoderConfig& model, const EngineOptions& options, int64_t limit_bytes) {
    Alternative smallest = {.options = options};
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Alternative& alternative : alternatives(model, options)) {
        const int64_t bytes = bytes_of(model, alternative.options);
        if (bytes <= limit_bytes)
            return fmt::format("The cheapest change that fits: {}, which needs {}",
                               join(alternative.says, ", "), bytes_text(double(bytes)));
        if (bytes >= least) continue;
        least = bytes;
        smallest = alternative;
    }
    // shards of more ranks, each with one sequence at a time
    EngineOptions more = smallest.options;
    while (more.mesh.ranks() < most_ranks) {
        more.mesh.dp_shard *= 2;
        if (const int64_t bytes = bytes_of(model, more); bytes <= limit_bytes)
            return fmt::format(
                "{} ranks would do: with parallelism.data_parallel_shard_degree = {}{} each needs {}",
                more.mesh.ranks(), more.mesh.dp_shard,
                smallest.says.empty() ? "" : ", " + join(smallest.says, ", "), bytes_text(double(bytes)));
    }
    return fmt::format(
        "No change of the deck fits this model in here; the smallest needs {}. Lower "
        "training.seq_len, or choose a smaller model.flavor",
        bytes_text(double(least)));
}

}  // namespace coeus
