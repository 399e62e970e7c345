// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/toml.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <limits>

using namespace coeus;
using Catch::Contains;

TEST_CASE("a TOML file becomes a flat list in the order of the file, with places") {
    const auto entries = parse_toml(
        "include = \"base.toml\"\n"
        "[training]\n"
        "  steps = 1_000\n"
        "  lr = 1e-3\n"
        "[a.b]\n"
        "on = true\n"
        "words = [\"x\", \"y\"]\n"
        "nested = [[1], [2, 3]]\n",
        "deck.toml");
    REQUIRE(entries.size() == 6);
    CHECK(entries[0].key == "include");
    CHECK(entries[0].place == "deck.toml:1:1");
    CHECK(entries[1].key == "training.steps");
    CHECK(entries[1].value == TomlValue{int64_t(1000)});
    CHECK(entries[1].place == "deck.toml:3:3");
    CHECK(entries[2].value == TomlValue{1e-3});
    CHECK(entries[3].key == "a.b.on");
    CHECK(entries[3].value == TomlValue{true});
    CHECK(toml_text(entries[4].value) == "[\"x\", \"y\"]");
    CHECK(toml_text(entries[5].value) == "[[1], [2, 3]]");
    CHECK(parse_toml("", "empty.toml").empty());
    CHECK(parse_toml("[only_a_section]\n", "x").empty());
}

TEST_CASE("errors of TOML files name file, line and column") {
    CHECK_THROWS_WITH(parse_toml("[training]\nsteps = \n", "deck.toml"),
                      Contains("deck.toml:2:") && Contains("not valid TOML"));
    CHECK_THROWS_WITH(parse_toml("a = 1\na = 2\n", "deck.toml"), Contains("deck.toml:2:"));
    // an assertion of toml++ 3.3
    for (const char* text : {"[{a]\n", "[training]\nb = {= 1}\n"})
        CHECK_THROWS_WITH(parse_toml(text, "deck.toml"),
                          Contains("deck.toml:") && Contains("not valid TOML"));
    // what is meant
    CHECK_THROWS_WITH(parse_toml("[model]\nname = llama3  # ours\n", "deck.toml"),
                      Contains("deck.toml:2:") && Contains(". A text needs quotes: name = \"llama3\""));
    CHECK_THROWS_WITH(parse_toml("[data]\npath = /data/tokens.h5\n", "deck.toml"),
                      Contains(". A text needs quotes: path = \"/data/tokens.h5\""));
    CHECK_THROWS_WITH(parse_toml("on = True\n", "deck.toml"), Contains(". TOML writes on = true"));
    CHECK_THROWS_WITH(parse_toml("training:\n  steps: 5\n", "my.yaml"),
                      Contains("is a .yaml file by its name"));
    CHECK_THROWS_WITH(parse_toml("training:\n  steps: 5\n", "deck"), Contains("not YAML: it has [section]"));
    CHECK_THROWS_WITH(parse_toml("name = " + std::string(100'000, 'a') + "\n", "deck.toml"),
                      Contains("not valid TOML") && !Contains("quotes"));
    CHECK_THROWS_WITH(parse_toml("[training]\nwhen = 2024-01-01\n", "deck.toml"),
                      "deck.toml:2:8: training.when: a date or time is not possible here");
    CHECK_THROWS_WITH(parse_toml("[[groups]]\nwhen = 2024-01-01\n", "deck.toml"),
                      "deck.toml:2:8: groups: a date or time is not possible here");
    CHECK_THROWS_AS(parse_toml("\x89HDF\r\n\x1a\n\x00\x01", "x.h5"), ConfigError);  // another program's file
    const test::TemporaryFolder folder;
    const auto absent = (folder / "absent.toml").string();
    CHECK_THROWS_WITH(read_toml(absent), absent + ": cannot be read: No such file or directory");
    CHECK_THROWS_WITH(read_toml(folder.path()), Contains("it is a folder"));
    test::write_file(folder / "cut.toml", "[training]\nsteps = 10\n[che");
    CHECK_THROWS_WITH(read_toml(folder / "cut.toml"), Contains("cut.toml:3:"));
}

TEST_CASE("a key of too many parts is refused, with line and limit") {
    const auto key_of = [](int parts) {
        std::string key = "a";
        for (int i = 1; i < parts; ++i) key += i % 2 ? ".a" : " . \"a\"";
        return key;
    };
    CHECK(parse_toml(key_of(64) + " = 1\n", "x").size() == 1);
    CHECK(parse_toml("[" + key_of(64) + "]\nb = 1\n", "x").size() == 1);
    // a string that ends with one more quote, a string with a quote, a comment
    const std::string before = "text = \"\"\"\n'\"\"\"\"\nother = '\"' # '\n";
    for (const int parts : {65, 30000})
        for (const std::string& text :
             {key_of(parts) + " = 1\n", "[" + key_of(parts) + "]\n", "[[" + key_of(parts) + "]]\n",
              "x = [1.5, {y = '''it's''', " + key_of(parts) + " = 2}]\n", key_of(parts)})
            CHECK_THROWS_WITH(parse_toml(before + text, "deck.toml"),
                              "deck.toml:4: a key has more than 64 parts; write one with fewer dots");
    // dots that do not separate parts of a key
    const std::string dots(100, '.');
    CHECK(
        parse_toml("a = \"" + dots + "\\\"" + dots + "\" # " + dots + "\nb = '" + dots + "'\n", "x").size() ==
        2);
    std::string list = "a = [0.5";
    for (int i = 0; i < 100; ++i) list += ", 0.5";
    CHECK(parse_toml(list + "]\n", "x").size() == 1);
    // nested tables, each with its own key
    std::string nested = "1";
    for (int i = 0; i < 100; ++i) nested = "{" + key_of(64) + " = " + nested + "}";
    CHECK(parse_toml("a = " + nested + "\n", "x").size() == 1);
}

TEST_CASE("values written as TOML read back as the same values") {
    const std::vector<TomlValue> values = {
        {true},
        {int64_t(-7)},
        {std::numeric_limits<int64_t>::min()},
        {1.0},
        {0.1},
        {8e-4},
        {1e300},
        {5e-324},
        {std::numeric_limits<double>::infinity()},
        {std::string("plain")},
        {std::string("a \"quoted\" \\ back\nline\ttab \x01 \x7f caf\xc3\xa9")},
        {TomlValue::List{}},
        {TomlValue::List{{std::string("a,b")}, {std::string("")}}},
    };
    for (const TomlValue& value : values) {
        const auto entries = parse_toml("x = " + toml_text(value), "x");
        REQUIRE(entries.size() == 1);
        CHECK(entries[0].value == value);
    }
}

TEST_CASE("tables in a list are kept as text that reads back as the same tables") {
    const auto entries = parse_toml(
        "[[a.groups]]\nname = \"x\\\"y\"\n[a.groups.inner]\nlr = 1e-3\n\"odd key\" = [1, 2]\n[[a.groups]]\n",
        "x");
    REQUIRE(entries.size() == 1);
    CHECK(entries[0].key == "a.groups");
    const std::string text = toml_text(entries[0].value);
    CHECK(text == "[{inner = {lr = 0.001, \"odd key\" = [1, 2]}, name = \"x\\\"y\"}, {}]");
    const auto again = parse_toml("a.groups = " + text, "x");
    REQUIRE(again.size() == 1);
    CHECK(again[0].value == entries[0].value);
}
