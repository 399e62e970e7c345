// SPDX-License-Identifier: Apache-2.0
// What a dry run says about options that halves of a local batch in turn leave without an effect.
#include "coeus/deck/command_line.hpp"
#include "coeus/setup/finding.hpp"
#include "coeus/train/preflight.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <string>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("dry run: halves of a local batch in turn count as one where gradients are summed once a step") {
    const auto notice = [](const std::string& global_batch) {
        std::string found;
        for (const Finding& line :
             preflight(parse_command_line(
                           {paths::source() + "/inputs/qwen3_moe_debug.toml", "--dry_run",
                            "--parallelism.fsdp_sum_gradients=step", "--parallelism.expert_parallel_degree=2",
                            "--parallelism.expert_parallel_overlap", "--training.local_batch_size=2",
                            "--training.global_batch_size=" + global_batch}),
                       2))
            if (line.line().find("parallelism.fsdp_sum_gradients has no effect") != std::string::npos)
                found = line.line();
        return found;
    };
    CHECK_THAT(notice("4"), Contains("on a step of one local batch"));
    CHECK(notice("8").empty());
}
