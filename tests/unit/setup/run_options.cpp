// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/run_options.hpp"

#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/train/preflight.hpp"
#include "support/catch.hpp"
#include "support/two_flow_model.hpp"

using namespace coeus;
using namespace coeus::test;

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

TEST_CASE("run options: a mesh that a model of another kind cannot divide is refused") {
    const ModelConfig two_flows(std::make_shared<TwoFlowDescription>(3, 6, 11));
    const auto refusal = [&](const MeshShape& mesh) -> std::string {
        try {
            engine_options({}, two_flows, mesh, 0, {});
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "";
    };
    CHECK(
        refusal({.tp = 3}) ==
        "parallelism.tensor_parallel_degree = 3: ranks cannot divide the matrices of two flows; set it to 1");
    CHECK(refusal({.cp = 2}) ==
          "parallelism.context_parallel_degree = 2: ranks cannot divide the sequences of two flows; set it "
          "to 1");
    CHECK(refusal({.dp_shard = 2, .ep = 2}) ==
          "parallelism.expert_parallel_degree = 2: two flows has no experts; set it to 1");
    CHECK(refusal({.dp_replicate = 2, .dp_shard = 2}).empty());
}
