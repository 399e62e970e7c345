// SPDX-License-Identifier: Apache-2.0
// What a deck's reader is told of models and optimizers, and what it does without.
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/models/registry.hpp"
#include "support/catch.hpp"

#include <algorithm>

using namespace coeus;
using Catch::Contains;

namespace {

// The message of the ConfigError, or "no error".
std::string refusal(std::vector<std::string> arguments, const DeckRules& rules, int ranks = 1) {
    arguments.push_back("--training.dataset_path=x.h5");
    try {
        parse_by_rules(arguments, rules, ranks);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("deck rules: without any, only what config knows is refused") {
    const std::vector<std::string> unknown = {"--model.name=mine", "--parallelism.tensor_parallel_degree=3",
                                              "--training.seq_len=96",
                                              "--optimizer.param_groups={pattern = '('}"};
    CHECK(refusal(unknown, DeckRules(), 3) == "no error");
    CHECK_THAT(refusal(unknown, deck_rules(), 3), Contains("model.name") && Contains("regular expression"));
    CHECK_THAT(refusal({"--optimizer.name=SGD"}, DeckRules()), Contains("must be one of AdamW, Adam, Muon"));
}

TEST_CASE("deck rules: an option gets the choices that are handed down") {
    const DeckRules rules = {.choices = {{"model.name", {"one", "two"}, {"one"}}}};
    CHECK(refusal({"--model.name=One"}, rules) == "no error");
    CHECK(refusal({"--model.name=Two"}, rules) == "model.name = \"two\": is not implemented yet; use one");
    CHECK_THAT(refusal({"--model.name=onne"}, rules), Contains("must be one of one, two; did you mean one?"));
    const auto names = option_names(rules);
    const auto at = std::ranges::find(names, "model.name", &OptionName::name);
    REQUIRE(at != names.end());
    CHECK(at->choices == Words{"one"});
}

TEST_CASE("deck rules: the degrees are compared with the model before the mesh") {
    CHECK_THAT(refusal({"--parallelism.tensor_parallel_degree=3"}, deck_rules(), 8),
               Contains("it must divide training.seq_len = 2048 and model.n_heads = 16"));
}

TEST_CASE("deck rules: the default of model.name is a family") {
    CHECK_NOTHROW(find_family(Config().model.name));
}
