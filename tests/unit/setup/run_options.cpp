// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/train/preflight.hpp"
#include "support/catch.hpp"

using namespace coeus;

TEST_CASE("run options: ranks divide experts that no layer has as little as none") {
    const auto planned = [](const std::string& dense_layers) {
        const Words arguments = {"--dry_run",
                                 "--model.name=deepseek_v3",
                                 "--model.flavor=debugmodel",
                                 "--training.seq_len=64",
                                 "--parallelism.expert_parallel_degree=2",
                                 "--model.n_dense_layers=" + dense_layers};
        std::string text;
        try {
            for (const Finding& line : preflight(parse_command_line(arguments), 2)) text += line.text + "\n";
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return text;
    };
    CHECK_THAT(planned("5"), Catch::Contains("Experts: each of 2 ranks has 4 of 8"));
    for (const char* all : {"6", "7"})
        CHECK(planned(all) ==
              "parallelism.expert_parallel_degree = 2: deepseek_v3 debugmodel has no experts; set it to 1");
}
