// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/hub_name.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <filesystem>

using namespace coeus;
using Catch::Contains;

TEST_CASE("names of the Hub: the command that downloads is named, and only for OWNER/NAME") {
    CHECK_THAT(
        download_hint("meta-llama/Llama-3.2-1B"),
        Contains("nothing is downloaded: `hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B`"));
    for (const char* path :
         {"Llama", "./a/b", "/a/b", "a/b/c", "a/", "~/b", "a b/c", "../b", "run/step-1.h5", ""}) {
        CAPTURE(path);
        CHECK(download_hint(path).empty());
    }
    const test::TemporaryFolder folder;
    // a path below a folder that exists is a path
    std::filesystem::create_directory(folder / "outputs");
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    const std::string hint = download_hint("outputs/gone");
    std::filesystem::current_path(before);
    CHECK(hint.empty());
}
