// SPDX-License-Identifier: Apache-2.0
// What a resumed run says of options that its checkpoint's deck had otherwise.
#include "coeus/train/setup.hpp"
#include "support/catch.hpp"

using namespace coeus;
using Catch::Contains;

namespace {

Config with_groups(const std::string& groups) {
    Config config;
    config.optimizer.param_groups = {TomlTable{"{roles = \"bias\"}"}, TomlTable{groups}};
    return config;
}

}  // namespace

TEST_CASE("a change of a parameter group names the group and its option") {
    const std::string before =
        deck_text(with_groups("{optimizer_kwargs = {lr = 0.1, eps = 1.0}, roles = \"norm\"}"));
    CHECK(changes_since(before, with_groups("{optimizer_kwargs = {lr = 0.1, eps = 1.0}, roles = \"norm\"}"))
              .empty());
    const auto rate =
        changes_since(before, with_groups("{optimizer_kwargs = {lr = 0.2, eps = 1.0}, roles = \"norm\"}"));
    REQUIRE(rate.size() == 1);
    CHECK_THAT(rate[0], Contains("the learning-rate schedule is not the checkpoint's") &&
                            Contains("(optimizer.param_groups[1].optimizer_kwargs.lr was 0.1, is 0.2)"));
    const auto other =
        changes_since(before, with_groups("{optimizer_kwargs = {lr = 0.1}, roles = \"norm\"}"));
    REQUIRE(other.size() == 1);
    CHECK_THAT(
        other[0],
        Contains("the run is not the checkpoint's: optimizer.param_groups[1].optimizer_kwargs.eps was 1.0, "
                 "is not given"));
    // of a deck without groups
    CHECK_THAT(changes_since(deck_text(Config()), with_groups("{roles = \"norm\"}"))[0],
               Contains("optimizer.param_groups[1].roles was not given, is \"norm\""));
}
