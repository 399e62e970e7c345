// SPDX-License-Identifier: Apache-2.0
// The program executes itself again so that waiting threads sleep, unless the user has chosen how they wait.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// What libgomp prints when it is loaded, and the program's message about a deck that does not exist.
std::string start_with(const std::string& settings) {
    const Outcome start = run_shell("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose " +
                                    settings + " '" + paths::program() + "' train 'a b' < /dev/null");
    INFO(start.output);
    CHECK(start.exit_code == 2);
    return start.output;
}

int starts_in(const std::string& output) {
    return int(count_of("OPENMP DISPLAY ENVIRONMENT BEGIN", output));
}

}  // namespace

TEST_CASE("waiting threads sleep soon: the program is executed once more, with the same arguments") {
    const std::string output = start_with("");
    CHECK(starts_in(output) == 2);
    CHECK(count_of("GOMP_SPINCOUNT = '10000'", output) == 1);
    // the message names an argument with spaces
    const auto message = [](const std::string& all) { return all.substr(all.find(" - error - ")); };
    CHECK_THAT(message(output), Contains("a b"));
    CHECK(message(output) == message(start_with("OMP_WAIT_POLICY=passive")));
}

// Then the system would execute the loader again, without the program.
TEST_CASE("waiting threads of a program that the loader was started with are left as they are") {
    std::string loader;
    for (const char* path : {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"})
        if (std::filesystem::exists(path)) loader = path;
    if (loader.empty()) return;
    const Outcome start = run_shell("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose " +
                                    loader + " '" + paths::program() + "' train 'a b' < /dev/null");
    INFO(start.output);
    CHECK(start.exit_code == 2);
    CHECK(starts_in(start.output) == 1);
    CHECK_THAT(start.output, Contains("a b"));
}

TEST_CASE("waiting threads do as the user says") {
    for (const char* choice : {"OMP_WAIT_POLICY=active", "OMP_WAIT_POLICY=passive", "GOMP_SPINCOUNT=77"}) {
        CAPTURE(choice);
        CHECK(starts_in(start_with(choice)) == 1);
    }
    CHECK_THAT(start_with("GOMP_SPINCOUNT=77"), Contains("GOMP_SPINCOUNT = '77'"));
    // a command that one process computes starts no threads for long
    const Outcome help = run_shell("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose '" +
                                   paths::program() + "' info --help < /dev/null");
    CHECK(starts_in(help.output) == 1);
}
