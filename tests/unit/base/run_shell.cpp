// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <string>
#include <vector>

using namespace coeus::test;

TEST_CASE(
    "run_shell: an end that mpirun misses counts as 0 if each rank exited with 0, by the ranks' files") {
    const std::string scripts = paths::source() + "/tests/support/";
    const TemporaryFolder folder;
    // mpirun.sh itself, with a stand-in for mpirun whose ranks write these files
    const auto code_of = [&](int code, const std::vector<std::string>& files) {
        std::string mpirun = "#!/bin/sh\nmkdir -p $COEUS_RANK_EXITS\n";
        for (size_t rank = 0; rank < files.size(); ++rank)
            mpirun += "echo " + files[rank] + " > $COEUS_RANK_EXITS/" + std::to_string(rank) + "\n";
        write_file(folder / "mpirun", mpirun + "exit " + std::to_string(code) + "\n");
        return run_shell("sh " + scripts + "mpirun.sh '' sh " + (folder / "mpirun").string()).exit_code;
    };
    CHECK(code_of(0, {"0 2", "0 2"}) == 0);
    CHECK(code_of(1, {"0 2", "0 2"}) == 0);
    CHECK(code_of(1, {"0 1"}) == 0);
    CHECK(code_of(2, {"0 2", "0 2"}) == 2);
    CHECK(code_of(1, {"0 2", "1 2"}) == 1);
    CHECK(code_of(1, {"1 2", "0 2"}) == 1);
    CHECK(code_of(1, {"0 2"}) == 1);
    CHECK(code_of(1, {}) == 1);
    CHECK(run_shell("sh " + scripts + "ranks_ended.sh 1 " + (folder / "absent").string()).exit_code == 1);
}

TEST_CASE("run_shell: the output and the exit code of a command") {
    std::vector<std::string> seen;
    const Outcome outcome = run_shell("echo text; echo more >&2; (exit 7)",
                                      [&](const std::string& line) { seen.push_back(line); });
    CHECK(outcome.exit_code == 7);
    CHECK(outcome.output == "text\nmore\n");
    CHECK(seen == std::vector<std::string>{"text", "more"});
}
