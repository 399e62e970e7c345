// SPDX-License-Identifier: Apache-2.0
// Absurd numbers of keys, groups and names, and texts of absurd lengths: refused, without work that grows
// with them.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Catch::EndsWith;

namespace {

std::string error_of_deck(const std::string& text) {
    const TemporaryFolder folder;
    write_file(folder / "deck.toml", text);
    try {
        parse_command_line({(folder / "deck.toml").string(), "--dry_run"});
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

std::string list_of(size_t count, const std::string& text) {
    return "[" + join(std::vector<std::string>(count, "\"" + text + "\""), ", ") + "]";
}

}  // namespace

TEST_CASE("limits: after 100 errors of a deck the others are not looked for") {
    // in the second deck, all errors but ten look like consequences of the first ones
    for (const auto& [form, lines] : {std::pair("key_{:05} = 1\n", 101), {"key_{} = 1\n", 11}}) {
        std::string keys = "[training]\n";
        for (int i = 0; i < 20'000; ++i) keys += fmt::format(fmt::runtime(form), i);
        const std::string error = error_of_deck(keys);
        CHECK(std::ranges::count(error, '\n') + 1 == lines);
        CHECK_THAT(error, Contains("unknown option training.key_") &&
                              EndsWith("\nthe first 100 errors are shown; there may be more"));
    }
}

TEST_CASE("limits: groups of parameters are counted before they are read") {
    std::string groups;
    for (int i = 0; i < 20'000; ++i) groups += "[[optimizer.param_groups]]\npattern = 3\n";
    CHECK_THAT(error_of_deck(groups),
               Contains("optimizer.param_groups: has 20000 groups; at most 31 are possible") &&
                   !Contains("pattern"));
}

TEST_CASE("limits: filters of layers have at most 1000 parts of at most 256 bytes") {
    for (const char* option : {"linear.float8.filter_fqns", "linear.mx.filter_fqns", "linear.mx.fqns",
                               "grouped_mm.float8.fqns", "grouped_mm.mx.fqns"}) {
        CAPTURE(option);
        const auto error = [&](const std::string& list) {
            return error_of_deck(fmt::format("[quantize]\n{} = {}\n", option, list));
        };
        CHECK(error(list_of(1001, "x")) ==
              fmt::format("quantize.{}: has 1001 parts of names; at most 1000 are possible", option));
        CHECK(error(list_of(2, std::string(257, 'x'))) ==
              fmt::format("quantize.{}: part 1 of a name has 257 bytes; at most 256 are possible", option));
        CHECK(error(list_of(1000, std::string(256, 'x'))).empty());
    }
}

TEST_CASE("limits: a long unknown name is not compared with the known ones") {
    const std::string name(100'000, 'x');
    CHECK_THAT(error_of_deck("[training]\n" + name + " = 1\n"),
               Contains("unknown option training." + name + "; `coeus help options` lists all of them"));
    CHECK(nearest_name(name, {std::string(100'000, 'y'), name + "x"}).empty());
    CHECK(nearest_name(std::string(250, 'x') + "z", {std::string(251, 'x')}) == std::string(251, 'x'));
}
