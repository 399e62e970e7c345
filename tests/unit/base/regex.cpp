// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/regex.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <string>

using namespace coeus;
using Catch::Contains;

TEST_CASE("regex: matches a part of a text") {
    CHECK(Regex("", "x").matches_part_of("layers.0.attention.wq.weight"));
    CHECK(Regex("layers\\.0\\.", "x").matches_part_of("layers.0.attention.wq.weight"));
    CHECK_FALSE(Regex("layers\\.0\\.", "x").matches_part_of("layers.10.attention.wq.weight"));
    CHECK(Regex("^layers\\.\\d+\\.(attention|moe)\\.", "x")
              .matches_part_of("layers.10.moe.router.gate.weight"));
    CHECK_FALSE(Regex("weight$", "x").matches_part_of("norm.weight_scale"));
    CHECK(Regex("(?!.*bias)norm", "x").matches_part_of("norm.weight"));
}

TEST_CASE("regex: an expression is refused with the reason, and never hangs or crashes") {
    CHECK_THROWS_WITH(
        Regex("w(", "pattern = \"w(\""),
        Contains("pattern = \"w(\": is not a regular expression: missing closing parenthesis, at byte 3"));
    CHECK_THROWS_WITH(Regex(std::string(4097, 'a'), "a pattern"),
                      Contains("a pattern: a regular expression has at most 4096 bytes, this one has 4097"));
    CHECK_NOTHROW(Regex(std::string(4096, 'a'), "a pattern").matches_part_of("b"));
    CHECK_THROWS_WITH(Regex(std::string(300, '(') + std::string(300, ')'), "a pattern"),
                      Contains("a pattern: is not a regular expression: parentheses are too deeply nested"));
    // each takes exponential time, or a stack of any depth, without limits; the name has the letter that they
    // need
    std::string stars;
    for (int i = 0; i < 15; ++i) stars += ".*";
    const std::string name = "layers.10.feed_forward.experts.shared.weight_of_some_length_that_matters";
    for (const std::string& hostile :
         {std::string("(.*)*y$"), std::string("(.+)+$y"), std::string("(.|.)*y$"), std::string("(.?){40}y$"),
          stars + "yy", std::string("(a*)*b|(.*?)*?\\1y")}) {
        CAPTURE(hostile);
        try {
            const bool found = Regex(hostile, "a pattern").matches_part_of(name);
            CHECK_FALSE(found);
        } catch (const ConfigError& error) {
            CHECK_THAT(error.what(),
                       Contains("a pattern: takes too long to compare with \"" + name + "\" (") &&
                           Contains("write a simpler expression"));
        }
    }
    CHECK_THROWS_AS(Regex("(.|.)*y$", "a pattern").matches_part_of(name), ConfigError);
}
