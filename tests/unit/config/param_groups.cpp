// SPDX-License-Identifier: Apache-2.0
// optimizer.param_groups: as tables of a deck, on the command line, in the effective deck, and with mistakes.
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using Catch::Contains;

namespace {

Config config_with(std::vector<std::string> arguments) {
    arguments.emplace_back("--dry_run");
    return parse_command_line(arguments).config;
}

std::string error_of_groups(const std::string& groups) {
    try {
        config_with({"--optimizer.param_groups=" + groups});
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("param_groups: a group takes other values from [optimizer], wherever that is in the deck") {
    const test::TemporaryFolder folder;
    const std::string deck = (folder / "deck.toml").string();
    test::write_file(deck,
                     "[[optimizer.param_groups]]\npattern = 'norm|bias'\n"
                     "optimizer_kwargs = {weight_decay = 0, betas = [0.8, 0.9], lr = 1e-4}\n"
                     "[[optimizer.param_groups]]\nroles = ['embedding', 'output']\noptimizer_name = 'Adam'\n"
                     "[lr_scheduler]\nwarmup_steps = 1\n");
    const Config config = config_with({deck, "--optimizer.eps=1e-6", "--optimizer.lr=0.5"});
    const std::vector<ParamGroupOptions> groups = param_groups(config);
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].pattern == "norm|bias");
    CHECK(groups[0].roles.empty());
    CHECK(groups[0].optimizer.name == "AdamW");
    CHECK(groups[0].optimizer.weight_decay == 0);
    CHECK(groups[0].optimizer.beta1 == 0.8);
    CHECK(groups[0].optimizer.beta2 == 0.9);
    CHECK(groups[0].optimizer.lr == 1e-4);
    CHECK(groups[0].optimizer.eps == 1e-6);
    CHECK(groups[1].pattern.empty());
    CHECK(groups[1].roles == Words{"embedding", "output"});
    CHECK(groups[1].optimizer.name == "Adam");
    CHECK(groups[1].optimizer.lr == 0.5);
    CHECK(groups[1].optimizer.weight_decay == 0.1);

    // the effective deck describes the same groups
    const std::string effective = (folder / "effective.toml").string();
    test::write_file(effective, deck_text(config));
    const Config again = config_with({effective});
    CHECK(again.optimizer.param_groups == config.optimizer.param_groups);
    CHECK(param_groups(again).size() == 2);
}

TEST_CASE("param_groups: on the command line, alone or as a list") {
    for (const char* groups : {"{pattern = 'norm', optimizer_kwargs = {lr = 0.1}}, {roles = 'bias'}",
                               "[{pattern = 'norm', optimizer_kwargs = {lr = 0.1}}, {roles = 'bias'}]"}) {
        const auto all = param_groups(config_with({std::string("--optimizer.param_groups=") + groups}));
        REQUIRE(all.size() == 2);
        CHECK(all[0].optimizer.lr == 0.1);
        CHECK(all[1].roles == Words{"bias"});
    }
    CHECK(param_groups(config_with({})).empty());
}

TEST_CASE("param_groups: mistakes name group and key") {
    CHECK_THAT(error_of_groups("x"), Contains("not valid TOML"));
    CHECK_THAT(error_of_groups("[1]"), Contains("must be a list of tables, such as [{key = 1}, {key = 2}]"));
    CHECK_THAT(error_of_groups("{}"), Contains("optimizer.param_groups, group 1: needs pattern or roles"));
    CHECK_THAT(
        error_of_groups("{pattern = 'a'}, {pattern = 1}"),
        Contains("optimizer.param_groups, group 2: pattern = 1: must be a regular expression in quotes"));
    CHECK_THAT(error_of_groups("{roles = 'weights'}"),
               Contains("roles = \"weights\": must be one or more of matrix, embedding, output, norm, bias"));
    CHECK_THAT(error_of_groups("{pattern = 'a', lr = 1}"),
               Contains("lr = 1: is not a key of a group; its keys are pattern, roles, optimizer_name and "
                        "optimizer_kwargs"));
    CHECK_THAT(error_of_groups("{pattern = 'a', optimizer_kwargs = {lr = -1}}"),
               Contains("optimizer_kwargs.lr = -1: must be at least 0"));
    CHECK_THAT(error_of_groups("{pattern = 'a', optimizer_kwargs = {rho = 1}}"),
               Contains("optimizer_kwargs.rho = 1: is not an option of an optimizer"));
    CHECK_THAT(error_of_groups("{pattern = 'a', optimizer_kwargs = {param_groups = []}}"),
               Contains("is not an option of an optimizer"));
    CHECK_THAT(error_of_groups("{pattern = 'a', optimizer_kwargs = {betas = [1]}}"),
               Contains("optimizer_kwargs.betas = [1]: must be two numbers"));
    CHECK_THAT(error_of_groups("{pattern = 'a', optimizer_kwargs = {betas = [0.9, 1]}}"),
               Contains("must be at least 0 and less than 1"));
    CHECK_THAT(error_of_groups("{pattern = 'a', optimizer_name = 'SGD'}"),
               Contains("must be one of AdamW, Adam, Muon"));
    CHECK_THAT(error_of_groups("{pattern = '('}"), Contains("pattern = \"(\": is not a regular expression"));
}

TEST_CASE("param_groups: moments in bfloat16 are refused with weights in float64") {
    CHECK_THROWS_WITH(
        config_with({"--optimizer.implementation=fused_opt_states_bf16", "--training.dtype=float64"}),
        Contains("moments in bfloat16 need weights in float32") && Contains("remove one of the two"));
    const std::string groups =
        "--optimizer.param_groups={pattern = 'a'}, "
        "{pattern = 'b', optimizer_kwargs = {implementation = 'fused_opt_states_bf16'}}";
    CHECK_THROWS_WITH(config_with({groups, "--training.dtype=float64"}),
                      Contains("optimizer.param_groups, group 2: optimizer_kwargs.implementation = "
                               "\"fused_opt_states_bf16\": moments in bfloat16 need weights in float32"));
    CHECK(param_groups(config_with({groups})).size() == 2);
}

TEST_CASE("param_groups: a group knows whether it names its optimizer") {
    const auto groups = param_groups(
        config_with({"--optimizer.name=Muon",
                     "--optimizer.param_groups={roles = 'norm', optimizer_kwargs = {weight_decay = 0}}, "
                     "{roles = 'bias', optimizer_name = 'Muon'}"}));
    REQUIRE(groups.size() == 2);
    CHECK_FALSE(groups[0].names_optimizer);
    CHECK(groups[0].optimizer.name == "Muon");
    CHECK(groups[1].names_optimizer);
}

TEST_CASE("options that no optimizer reads cause a notice") {
    const auto notices = [](std::vector<std::string> arguments) {
        arguments.emplace_back("--dry_run");
        arguments.emplace_back("--training.dataset_path=x");
        return parse_command_line(arguments).notices;
    };
    const std::string muon = "--optimizer.name=Muon", momentum = "--optimizer.momentum=0.5",
                      group = "--optimizer.param_groups={pattern = 'a', optimizer_";
    CHECK(notices({momentum}) == Words{"optimizer.momentum has no effect: it is not used by AdamW"});
    CHECK(notices({"--optimizer.momentum=0.95"}).empty());  // the default
    CHECK(notices({momentum, muon}).empty());
    // read by the optimizer that replaces Muon for other parameters
    CHECK(notices({"--optimizer.beta1=0.5", muon}).empty());
    CHECK(notices({momentum, group + "name = 'Muon'}"}).empty());
    const Words unread = {
        "optimizer.param_groups, group 1: optimizer_kwargs.ns_steps has no effect: it is not used by AdamW"};
    CHECK(notices({group + "kwargs = {ns_steps = 3}}"}) == unread);
    CHECK(notices({muon, group + "kwargs = {ns_steps = 3, betas = [0.5, 0.9]}}"}).empty());
    CHECK(
        notices({group + "name = 'Muon', optimizer_kwargs = {betas = [0.5, 0.9]}}"}) ==
        Words{
            "optimizer.param_groups, group 1: optimizer_kwargs.betas has no effect: it is not used by Muon"});
}

TEST_CASE("param_groups: impossible values name the group") {
    CHECK_THAT(error_of_groups(
                   "{pattern = 'a', optimizer_name = 'Muon', optimizer_kwargs = {ns_coefficients = [1]}}"),
               Contains("optimizer.param_groups: pattern = \"a\": ns_coefficients: must be three numbers"));
    CHECK_THAT(
        error_of_groups("{pattern = 'a', optimizer_kwargs = {ns_steps = 100}}"),
        Contains("optimizer_kwargs.ns_steps = 100: must be from 1 to 99; the nearest valid value is 99"));
    for (const char* bad : {"nan", "inf"})
        CHECK_THAT(
            error_of_groups(std::string("{pattern = 'a', optimizer_kwargs = {ns_coefficients = [1, 2, ") +
                            bad + "]}}"),
            Contains("must be a finite number"));
}
