// SPDX-License-Identifier: Apache-2.0
// A run owns its folder and its folder of checkpoints, and loses its right to write with either of them.
#include "coeus/train/run_owner.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

Config config_in(const fs::path& folder, const std::string& checkpoints) {
    Config config;
    config.job.dump_folder = folder.string();
    config.checkpoint.enable = true;
    config.checkpoint.folder = checkpoints;
    fs::create_directories(folder / checkpoints);
    return config;
}

}  // namespace

TEST_CASE("run owner: a run that lost only one of its folders may write to neither") {
    const TemporaryFolder folder;
    // inside the run's folder, and shared by runs with different folders
    for (const fs::path& checkpoints : {fs::path("checkpoint"), folder / "shared"}) {
        const Config config = config_in(folder / "run", checkpoints.string());
        const Communicator alone = Communicator::self();
        RunOwner owner(config, alone);
        owner.take([] { FAIL("another run has the folders"); });
        const fs::path run = folder / "run";
        for (const fs::path& lost : {run, run / checkpoints}) {
            CAPTURE(lost.string());
            CHECK_NOTHROW(owner.require_owned());
            const std::string own = read_file(lost / ".owner");
            std::string other = own;
            other.replace(other.find("\"id\":\"") + 6, 16, "0123456789abcdef");
            write_file(lost / ".owner", other);
            CHECK_THROWS_AS(owner.require_owned(), SystemError);
            CHECK_THROWS_WITH(owner.writer().require_owned(),
                              Contains("this run has lost its folder " + lost.string()));
            write_file(lost / ".owner", own);
        }
    }
}
