// SPDX-License-Identifier: Apache-2.0
// Options in the name of a run's folder.
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"

using namespace coeus;
using Catch::Contains;

namespace {

std::string folder_for(std::vector<std::string> more, const std::string& pattern) {
    more.push_back("--job.dump_folder=" + pattern);
    more.push_back("--dry_run");
    return parse_command_line(more).config.job.dump_folder;
}

}  // namespace

TEST_CASE("folder pattern: options are replaced by their values") {
    CHECK(folder_for({"--optimizer.lr=5e-3", "--debug.seed=7"}, "sweep/{optimizer.lr}_{debug.seed}") ==
          "sweep/0.005_7");
    CHECK(folder_for({}, "runs/{optimizer.name}/x") == "runs/AdamW/x");
    CHECK(folder_for({"--training.dataset_path=a/b c.txt"}, "{training.dataset_path}") == "a_bc.txt");
    CHECK(folder_for({}, "plain {} {1} {x} {open") == "plain {} {1} {x} {open");
}

TEST_CASE("folder pattern: an unknown option is refused with the nearest name") {
    CHECK_THROWS_WITH(
        folder_for({}, "{optimizer.lrr}"),
        Contains(
            "job.dump_folder: {optimizer.lrr} is not an option with a value; did you mean {optimizer.lr}?"));
    CHECK_THROWS_WITH(folder_for({}, "{job.dump_folder}"), Contains("is not an option with a value"));
}
