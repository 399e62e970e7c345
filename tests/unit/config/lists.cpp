// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

using namespace coeus;

namespace {

Config config_of_list(std::vector<std::string> arguments) {
    arguments.emplace_back("--training.dataset_path=x.h5");
    return parse_command_line(arguments).config;
}

std::vector<std::string> validation_paths(const std::string& list) {
    return config_of_list({"--validation.dataset_path=" + list}).validation.dataset_path;
}

}  // namespace

TEST_CASE("lists on the command line are written with commas, or as in a deck") {
    CHECK(validation_paths("a.txt,b.txt") == std::vector<std::string>{"a.txt", "b.txt"});
    CHECK(validation_paths(R"(["a,b.txt", "c.txt"])") == std::vector<std::string>{"a,b.txt", "c.txt"});
    // patterns of files
    CHECK(validation_paths("[ab].txt") == std::vector<std::string>{"[ab].txt"});
    CHECK(validation_paths("[ab]") == std::vector<std::string>{"[ab]"});
    for (const char* weights : {"0.7,0.3", "[0.7, 0.3]", "[0.7,0.3]"})
        CHECK(config_of_list(
                  {"--validation.dataset_path=a,b", fmt::format("--validation.dataset_weights={}", weights)})
                  .validation.dataset_weights == std::vector<double>{0.7, 0.3});
    CHECK(config_of_list({"--log.ranks=[0, 1]"}).log.ranks == std::vector<int64_t>{0, 1});
    try {
        config_of_list({"--log.ranks=[0, x]"});
        FAIL("a wrong list was accepted");
    } catch (const ConfigError& error) {
        CHECK(std::string(error.what()) ==
              "command line: log.ranks = [0, x]: must be whole numbers, such as [0, 1] or \"0,1\"");
    }
}
