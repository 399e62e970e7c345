// SPDX-License-Identifier: Apache-2.0
// The walk-throughs of examples/ do what they say, in short.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("examples: resume_elsewhere moves a run between meshes, and its curve stays") {
    const TemporaryFolder folder;
    const Outcome walk = run_shell("STEPS=6 '" COEUS_SOURCE_DIR "/examples/resume_elsewhere/run.sh' '" +
                                   folder.path().string() + "' '" COEUS_PROGRAM "' < /dev/null");
    INFO(walk.output);
    REQUIRE(walk.exit_code == 0);
    CHECK_THAT(walk.output, Contains("Mesh: 2 ranks: dp_shard 2") && Contains("Mesh: 4 ranks: pp 2 x tp 2") &&
                                Contains("Resuming from moved/checkpoint/step-00000002.h5: step 2") &&
                                Contains("Resuming from moved/checkpoint/step-00000004.h5: step 4") &&
                                Contains("checkpoint of Coeus, weights and optimizer") &&
                                Contains("117 arrays in both") && Contains("Loss (nats per token)"));
    const MetricLines stayed = read_metrics(folder / "stayed"), moved = read_metrics(folder / "moved");
    // each start logs its last step too
    const auto last = [](const MetricLines& lines) {
        return lines.steps.empty() ? 0 : lines.steps.back().step;
    };
    REQUIRE(last(stayed) == 6);
    REQUIRE(last(moved) == 6);
    CHECK(relatively_close(moved.steps.back().loss, stayed.steps.back().loss, 1e-12));
}
