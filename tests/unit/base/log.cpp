// SPDX-License-Identifier: Apache-2.0
// The log file of a rank: every level and no colours, whatever the terminal shows.
#include "coeus/base/log.hpp"

#include "../../../src/base/progress_interval.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using Catch::Contains;

namespace {

// logging goes only to the terminal again when a case ends, since the sinks are global
struct RestoreLog {
    ~RestoreLog() { log::init({}); }
};

}  // namespace

TEST_CASE("the log file contains the lines that the terminal hides, without colours") {
    const test::TemporaryFolder folder;
    const RestoreLog restore;
    const std::string file = (folder / "rank_3.log").string();
    log::init({.rank = 3, .ranks = {0}, .file = file, .quiet = true});
    CHECK_FALSE(log::on_terminal());
    CHECK_FALSE(log::colored());
    log::write_colored(log::Level::info, "step: 1  \033[32mloss:  8.1\033[39m done");
    log::info("a file named \033[8mhidden");
    log::debug("only in the file");
    log::flush();
    const std::string text = test::read_file(file);
    CHECK_THAT(text, Contains("info step: 1  loss:  8.1 done"));
    CHECK_THAT(text, Contains("debug only in the file"));
    CHECK_THAT(text, Contains("info a file named \\x1b[8mhidden"));
    CHECK(text.find('\033') == std::string::npos);
}

TEST_CASE("long work without a terminal logs its rate at intervals") {
    const test::TemporaryFolder folder;
    const RestoreLog restore;
    const std::string file = (folder / "rank_0.log").string();
    log::init({.file = file, .quiet = true});
    const double before = progress_interval.exchange(1e9);
    {
        ProgressBar bar("tokenizing", 4096, true);
        bar.update(1024);
        log::flush();
        CHECK_THAT(test::read_file(file), !Contains("tokenizing"));
        progress_interval = 0;
        bar.update(2048);
    }
    progress_interval = before;
    log::flush();
    const std::string text = test::read_file(file);
    CHECK_THAT(text, Contains("tokenizing: 50%  2.00 KiB of 4.00 KiB  ") && Contains("/s  eta "));
}

TEST_CASE("lines of the chosen ranks reach the terminal") {
    const RestoreLog restore;
    log::init({.rank = 0});
    CHECK(log::on_terminal());
    log::init({.rank = 2, .ranks = {0, 2}});
    CHECK(log::on_terminal());
    log::init({.rank = 1, .ranks = {0, 2}});
    CHECK_FALSE(log::on_terminal());
    log::init({.rank = 0, .quiet = true});
    CHECK_FALSE(log::on_terminal());
}

TEST_CASE("a log file that cannot be written is named with the reason") {
    const test::TemporaryFolder folder;
    const RestoreLog restore;
    test::write_file(folder / "file", "");
    CHECK_THROWS_WITH(log::init({.file = (folder / "file" / "rank_0.log").string()}),
                      Contains("cannot write ") && Contains("rank_0.log: ") && Contains("Not a directory"));
}
