// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <string>

using namespace coeus::test;

TEST_CASE(
    "run_shell: an end that mpirun misses is forgiven, in the tests of programs and in those of ranks") {
    const std::string said =
        "printf 'step 1\\n-----\\nmpirun has exited due to process rank 0 with PID %s on\\nnode n exiting "
        "%s.\\n' ";
    const std::string script = "sh " + paths::source() + "/tests/support/mpirun.sh sh -c ";
    const auto ends_with = [&](const std::string& arguments, int code) {
        const Outcome direct = run_shell(said + arguments + "; (exit " + std::to_string(code) + ")");
        const std::string in_script = "\"" + said + arguments + "; exit " + std::to_string(code) + "\"";
        CHECK(run_shell(script + in_script).exit_code == direct.exit_code);
        return direct;
    };
    const Outcome forgiven = ends_with("0 improperly", 1);
    CHECK(forgiven.exit_code == 0);
    CHECK(forgiven.output == "step 1\n");
    CHECK(ends_with("0 improperly", 2).exit_code == 2);
    CHECK(ends_with("17 improperly", 1).exit_code == 1);
    CHECK(ends_with("0 early", 1).exit_code == 1);
    CHECK(run_shell("echo text; (exit 1)").exit_code == 1);
}
