// SPDX-License-Identifier: Apache-2.0
// Values that depend on several options together, or on the number of ranks.
#include "coeus/config/config.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <climits>
#include <numeric>

namespace coeus {

Dtype storage_dtype(const Config& config) {
    if (config.training.dtype == "float64") return Dtype::f64;
    return config.training.dtype == "bfloat16" ? Dtype::bf16 : Dtype::f32;
}

bool watches_loss(const Config::Guards& guards) {
    return guards.loss_spike != "off";
}

bool rewinds(const Config::Guards& guards) {
    return guards.loss_spike == "rewind" || guards.on_mismatch == "rewind";
}

bool excludes(const Words& parts, const std::string& part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
}

bool saves_async(const Config& config) {
    const Config::Checkpoint& options = config.checkpoint;
    return options.enable && !options.load_only && !options.create_seed_checkpoint &&
           options.async_mode != "disabled";
}

bool gradients_in_bf16(const Config& config) {
    return config.training.gradient_dtype == "bfloat16";
}

Dtype compute_dtype(const Config& config) {
    if (config.training.dtype == "float64") return Dtype::f64;
    return config.training.mixed_precision_param == "bfloat16" ? Dtype::bf16 : Dtype::f32;
}

int64_t gradient_accumulation_steps(const Config& config, int64_t dp_degree) {
    const int64_t global = config.training.global_batch_size, local = config.training.local_batch_size;
    if (global < 0) return 1;
    const int64_t at_once = local * dp_degree;
    if (global % at_once != 0)
        throw ConfigError(
            "training.global_batch_size = {}: must be a multiple of training.local_batch_size times the "
            "data-parallel degree ({} x {} = {}); the nearest valid value is {}",
            global, local, dp_degree, at_once,
            std::max<int64_t>(1, (global + at_once / 2) / at_once) * at_once);
    return global / at_once;
}

int fewest_ranks(const Config::Parallelism& degrees) {
    const int64_t others = degrees.tensor_parallel_degree * degrees.context_parallel_degree;
    int64_t shards = degrees.data_parallel_shard_degree;
    if (shards <= 0) {  // the fewest so that the experts' degree divides shards x others / etp
        const int64_t ep = degrees.expert_parallel_degree,
                      of_one_shard = others / degrees.expert_tensor_parallel_degree;
        shards = ep / std::gcd(ep, of_one_shard);
    }
    const double ranks = double(degrees.data_parallel_replicate_degree) * double(shards) * double(others) *
                         double(degrees.pipeline_parallel_degree);
    return ranks < INT_MAX ? int(ranks) : INT_MAX;
}

MeshShape mesh_shape(const Config& config, int ranks) {
    for (const int64_t shown : config.log.ranks)
        if (shown >= ranks)
            throw ConfigError("log.ranks = {}: this run has no such rank; its highest rank is {}", shown,
                              ranks - 1);
    if (config.checkpoint.create_seed_checkpoint && ranks > 1)
        throw ConfigError(
            "checkpoint.create_seed_checkpoint = true: works on one rank only, but there are {}; start 1",
            ranks);
    const Config::Parallelism& p = config.parallelism;
    // each degree is at most 65536, but MeshShape multiplies int
    const double product = double(p.data_parallel_replicate_degree) * double(p.context_parallel_degree) *
                           double(p.tensor_parallel_degree) * double(p.pipeline_parallel_degree) *
                           double(std::max<int64_t>(1, p.data_parallel_shard_degree));
    if (product > INT_MAX)
        throw ConfigError("the degrees of [parallelism] need {:.0f} ranks, but there are {}", product, ranks);
    const MeshShape shape = resolve_mesh({.pp = int(p.pipeline_parallel_degree),
                                          .dp_replicate = int(p.data_parallel_replicate_degree),
                                          .dp_shard = int(p.data_parallel_shard_degree),
                                          .cp = int(p.context_parallel_degree),
                                          .tp = int(p.tensor_parallel_degree),
                                          .ep = int(p.expert_parallel_degree),
                                          .etp = int(p.expert_tensor_parallel_degree)},
                                         ranks);
    const bool each_is_divided = shape.etp > 1;
    const int64_t exchange = shape.size(axis::dp_shard | axis::cp | axis::tp) / shape.etp;
    if (shape.ep > 1 && exchange % shape.ep != 0) {
        int64_t nearest = std::min(p.expert_parallel_degree, exchange);
        while (exchange % nearest != 0) --nearest;
        throw ConfigError(
            "parallelism.expert_parallel_degree = {}: must divide data_parallel_shard_degree x "
            "context_parallel_degree{} = {}; the nearest valid value is {}",
            p.expert_parallel_degree,
            each_is_divided ? " (expert_tensor_parallel_degree is tensor_parallel_degree)"
                            : " x tensor_parallel_degree",
            exchange, nearest);
    }
    return shape;
}

}  // namespace coeus
