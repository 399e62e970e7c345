// SPDX-License-Identifier: Apache-2.0
// The help of options and their reference, doc/decks.md.
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"
#include "unit/config/listed_options.hpp"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

using namespace coeus;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("doc/decks.md is up to date") {
    // to update it: build/coeus help options --markdown > doc/decks.md
    CHECK(test::read_file(fs::path(test::paths::source()) / "doc/decks.md") ==
          options_markdown(deck_rules()));
}

TEST_CASE("help names every option with default, choices and status") {
    const std::string help = options_help(deck_rules());
    CHECK(std::ranges::all_of(test::lines_of(help), [](const auto& line) { return line.size() <= 100; }));
    const std::string joined = std::regex_replace(help, std::regex("\n +"), " ");
    for (const test::ListedOption& option : test::listed_options())
        CHECK_THAT(help, Contains("\n  --" + option.name));
    CHECK_THAT(help, Contains("--training.steps=10000"));
    CHECK_THAT(joined, Contains("One of AdamW, Adam"));
    CHECK_THAT(joined, Contains("flux (not implemented yet)"));
    CHECK_THAT(joined, Contains("No effect: there is no garbage collector."));
    CHECK_THAT(joined, Contains("Default: that of model.flavor."));
    const std::string markdown = options_markdown(deck_rules());
    CHECK_THAT(markdown,
               Contains("\n- **`training.steps`** (integer, default `10000`): Number of optimizer steps"));
    CHECK_THAT(markdown, Contains("\n- `training.batch_size`: `training.local_batch_size`\n"));
    CHECK_THAT(markdown, Contains("## [quantize.linear.float8]"));
}

TEST_CASE("the reference of the options is wrapped so that its Markdown stays intact") {
    for (const std::string& line : test::lines_of(options_markdown(deck_rules()))) {
        INFO(line);
        if (!line.starts_with('|')) CHECK(line.size() <= 120);  // a row of a table is one line
        CHECK(std::ranges::count(line, '`') % 2 == (line.starts_with("```") ? 1 : 0));
        const size_t first = line.find_first_not_of(' ');
        if (!line.starts_with("  ") || first == std::string::npos) continue;
        // a continued line that looks like a new item or a heading
        const std::string word = line.substr(first, line.find(' ', first) - first);
        CHECK(std::set<std::string>{"-", "+", "*", ">", "#", "##"}.count(word) == 0);
        CHECK_FALSE((word.find_first_not_of("0123456789") == word.size() - 1 &&
                     (word.ends_with('.') || word.ends_with(')'))));
    }
}

TEST_CASE("the reference of the options has those without effect in one table at its end") {
    const std::string markdown = options_markdown(deck_rules());
    const size_t table = markdown.find("\n## Options without effect\n"),
                 end = markdown.find("\n## Other names\n");
    REQUIRE(table < end);
    size_t rows = 0;
    for (const std::string& line : test::lines_of(markdown.substr(table, end - table)))
        if (line.starts_with("| `")) {
            INFO(line);
            CHECK(std::ranges::count(line, '|') == 5);
            CHECK(markdown.find(line.substr(2, line.find(' ', 2) - 2) + "** (") == std::string::npos);
            ++rows;
        }
    const std::string help = std::regex_replace(options_help(deck_rules()), std::regex("\n +"), " ");
    size_t marked = 0;
    for (size_t at = 0; (at = help.find(". No effect", at)) != std::string::npos; ++at)
        marked += help.substr(at + 11, 2) == ": " || help.substr(at + 11, 6) == " yet: ";
    CHECK(rows > 80);
    CHECK(marked == rows);
    CHECK(markdown.find("No effect*") == std::string::npos);
    CHECK(markdown.find("No effect yet*") == std::string::npos);
    CHECK_THAT(markdown, Contains("[quantize.linear.float8](#quantizelinearfloat8),"));
    CHECK_THAT(markdown, !Contains("## [fault_tolerance]"));
}

TEST_CASE("help shows only the options whose names contain a word") {
    const auto shown = [](const Words& words) {
        Words names;
        for (const std::string& line : test::lines_of(options_help(deck_rules(), words)))
            if (line.starts_with("  --")) names.push_back(line.substr(4, line.find('=') - 4));
        return names;
    };
    CHECK(shown({"optimizer.lr"}) == Words{"optimizer.lr"});
    CHECK(shown({"shuffle"}) == Words{"training.shuffle", "validation.dataloader.shuffle"});
    CHECK(shown({"SHUFFLE"}) == shown({"shuffle"}));
    CHECK(shown({"optimizer.lr", "debug.seed"}) == Words{"debug.seed", "optimizer.lr"});
    const Words of_training = shown({"[training]"});
    CHECK(std::ranges::find(of_training, "training.steps") != of_training.end());
    CHECK(std::ranges::find(of_training, "training.dataloader.infinite") != of_training.end());
    CHECK(std::ranges::find(of_training, "optimizer.lr") == of_training.end());
    CHECK(options_help(deck_rules(), {"optimizer.lr"})
              .starts_with("[optimizer]\n  --optimizer.lr=0.0008\n      Learning rate"));
    CHECK(options_help(deck_rules(), {"training.seed"}) == "Other names:\n  --training.seed: debug.seed\n");
    CHECK_THROWS_WITH(options_help(deck_rules(), {"training", "shufle"}),
                      "coeus help options: unknown option shufle; did you mean training.shuffle?");
    CHECK_THROWS_WITH(
        options_help(deck_rules(), {"zzzzzzzzzz"}),
        "coeus help options: unknown option zzzzzzzzzz; `coeus help options` lists all of them");
}
