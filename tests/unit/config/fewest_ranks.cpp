// SPDX-License-Identifier: Apache-2.0
// fewest_ranks(): the number that a dry run takes if nothing says how many ranks there are.
#include "coeus/base/error.hpp"
#include "coeus/config/config.hpp"
#include "support/catch.hpp"

#include <climits>
#include <utility>

using namespace coeus;

namespace {

bool has_mesh(const Config& config, int ranks) {
    try {
        mesh_shape(config, ranks);
        return true;
    } catch (const ConfigError&) {
        return false;
    }
}

}  // namespace

TEST_CASE("the fewest ranks of any degrees are those that a search finds") {
    Config config;
    Config::Parallelism& p = config.parallelism;
    p.data_parallel_shard_degree = -1;
    for (const auto& [pp, replicas] : {std::pair(1, 1), {2, 1}, {1, 3}})
        for (const int64_t cp : {1, 2, 3, 4})
            for (const int64_t tp : {1, 2, 3, 4})
                for (const int64_t etp : {int64_t(1), tp})
                    for (int64_t ep = 1; ep <= 9; ++ep) {
                        p.pipeline_parallel_degree = pp;
                        p.data_parallel_replicate_degree = replicas;
                        p.context_parallel_degree = cp;
                        p.tensor_parallel_degree = tp;
                        p.expert_tensor_parallel_degree = etp;
                        p.expert_parallel_degree = ep;
                        int searched = 1;
                        while (!has_mesh(config, searched)) ++searched;
                        CAPTURE(pp, replicas, cp, tp, etp, ep);
                        CHECK(fewest_ranks(p) == searched);
                    }
}

TEST_CASE("the fewest ranks of a given number of shards are the product of the degrees") {
    Config::Parallelism p;
    p.data_parallel_shard_degree = 4;
    p.tensor_parallel_degree = 2;
    p.expert_parallel_degree = 8;
    CHECK(fewest_ranks(p) == 8);
    p.data_parallel_replicate_degree = p.context_parallel_degree = 65536;
    CHECK(fewest_ranks(p) == INT_MAX);
}
