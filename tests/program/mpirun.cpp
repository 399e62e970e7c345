// SPDX-License-Identifier: Apache-2.0
// That our ranks finalise MPI and exit with 0 decides about a run whose end mpirun misses
// (support/ranks_ended.sh).
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <cstdlib>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("mpirun: a run whose end it misses counts by the exit codes of its ranks") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const std::string path = std::getenv("PATH"),
                      program = paths::mpirun().substr(0, paths::mpirun().find(' '));
    // it misses every end
    const std::string mpirun = (folder / ("path/" + program)).string();
    write_file(mpirun, "#!/bin/sh\nPATH='" + path + "'\n" + program + " \"$@\"\nexit 1\n");
    std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
    const auto run = [&](const Arguments& more, const std::string& fault = "") {
        return run_coeus(tiny_run(folder / "run", folder / "tokens.h5", Arguments{steps(2)} + more), 2,
                         {{"PATH", (folder / "path").string() + ":" + path}, {"COEUS_FAULT", fault}});
    };
    const Outcome good = run({});
    INFO(good.output);
    CHECK(good.exit_code == 0);
    CHECK_THAT(good.output, Contains("Training completed at step 2"));
    CHECK(run({"--model.name=absent"}).exit_code == 1);
    CHECK(run({}, "exit rank=1 step=2").exit_code == 1);
}
