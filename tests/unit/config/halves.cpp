// SPDX-License-Identifier: Apache-2.0
// What a deck must have so that two halves of a local batch take turns (parallelism.expert_parallel_overlap).
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using Catch::Contains;

TEST_CASE(
    "halves of a local batch in turn need experts on several ranks, an even local batch, and no pipeline") {
    const auto error = [](const Words& more) -> std::string {
        Words words = {"--training.dataset_path=x.h5", "--parallelism.expert_parallel_overlap=true"};
        words.insert(words.end(), more.begin(), more.end());
        try {
            parse_command_line(words);
        } catch (const ConfigError& wrong) {
            return wrong.what();
        }
        return "";
    };
    const std::string ep = "--parallelism.expert_parallel_degree=2", two = "--training.local_batch_size=2";
    CHECK(error({ep, two}).empty());
    CHECK_THAT(error({two}),
               Contains("parallelism.expert_parallel_overlap = true: is for experts that several ranks "
                        "divide, but parallelism.expert_parallel_degree = 1; set a degree of at least "
                        "2, or remove the option"));
    for (const int local : {1, 3})
        CHECK_THAT(
            error({ep, fmt::format("--training.local_batch_size={}", local)}),
            Contains(fmt::format("divides a local batch into two halves, but training.local_batch_size = {}; "
                                 "the nearest valid value is {}",
                                 local, local + 1)));
    CHECK_THAT(
        error({ep, two, "--parallelism.pipeline_parallel_degree=2"}),
        Contains("is for a run without a pipeline, but parallelism.pipeline_parallel_degree = 2; choose "
                 "parallelism.pipeline_parallel_schedule = \"DualPipeV\""));
    CHECK_THAT(error({ep, two, "--training.enable_cpu_offload=true"}),
               Contains("does not work with training.enable_cpu_offload = true; remove one of the two"));
}
