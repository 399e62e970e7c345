// SPDX-License-Identifier: Apache-2.0
// Which layers are computed in 8 bits, against torchao and torchtitan (golden/README.md, section float8).
#include "coeus/deck/command_line.hpp"
#include "coeus/file/json.hpp"
#include "coeus/models/precision_plan.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;

namespace {

std::vector<std::string> strings_of(const JsonView& list) {
    std::vector<std::string> all;
    for (size_t i = 0; i < list.size(); ++i) all.push_back(list[i].string());
    return all;
}

}  // namespace

TEST_CASE("golden: filters of 8-bit layers by name") {
    const auto folder = test::golden("float8");
    if (folder.empty()) return;
    const JsonDocument document = JsonDocument::read(folder / "filters.json");
    const JsonView cases = document.root()["by_name"];
    const std::vector<std::string> names = strings_of(document.root()["names"]);
    REQUIRE(cases.size() > 0);
    for (size_t i = 0; i < cases.size(); ++i) {
        const std::vector<std::string> filters = strings_of(cases[i]["filter_fqns"]);
        std::vector<std::string> converted;
        for (const std::string& name : names)
            if (recipe_of_linear({.linear = Recipe::tensorwise, .filter_fqns = filters}, name + ".weight",
                                 256, 512) != Recipe::none)
                converted.push_back(name);
        CAPTURE(filters);
        CHECK(converted == strings_of(cases[i]["converted"]));
    }
}

TEST_CASE("golden: filters of 8-bit layers by size") {
    const auto folder = test::golden("float8");
    if (folder.empty()) return;
    const JsonDocument document = JsonDocument::read(folder / "filters.json");
    const JsonView rows = document.root()["by_size"];
    REQUIRE(document.root()["columns"].size() == 5);
    REQUIRE(rows.size() > 0);
    for (size_t i = 0; i < rows.size(); ++i) {
        const JsonView row = rows[i];
        const int64_t inputs = row[0].integer(), outputs = row[1].integer();
        CAPTURE(inputs, outputs);
        const auto converts = [&](Recipe recipe, const std::vector<std::string>& filters) {
            return recipe_of_linear({.linear = recipe, .filter_fqns = filters},
                                    "layers.0.attention.wq.weight", outputs, inputs) == recipe;
        };
        for (const Recipe recipe : {Recipe::tensorwise, Recipe::rowwise, Recipe::rowwise_with_gw_hp})
            CHECK(converts(recipe, {}) == row[2].boolean());
        CHECK(converts(Recipe::tensorwise, {auto_filter}) == row[3].boolean());
        CHECK(converts(Recipe::rowwise, {auto_filter}) == row[4].boolean());
    }
    CHECK(document.root()["rowwise_with_gw_hp with auto_filter_small_kn"].string().starts_with("refused"));
    CHECK_THROWS_WITH(parse_command_line({"--model.converters=float8", "--training.dataset_path=x",
                                          "--float8.recipe_name=rowwise_with_gw_hp",
                                          "--float8.filter_fqns=auto_filter_small_kn"}),
                      Catch::Contains("\"auto_filter_small_kn\" has no sizes for recipe_name = "));
}
