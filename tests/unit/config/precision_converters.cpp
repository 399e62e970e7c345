// SPDX-License-Identifier: Apache-2.0
// Options of training in 8 bits: names of converters and recipes, refusals, notices, and what a change means
// for a run that resumes.
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"

#include <algorithm>

using namespace coeus;
using Catch::Contains;

namespace {

CommandLine converted(Words arguments) {
    arguments.push_back("--training.dataset_path=x");
    return parse_command_line(arguments);
}

std::string refusal_of(const Words& arguments) {
    try {
        converted(arguments);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

const std::string float8 = "--model.converters=quantize.linear.float8",
                  mx = "--model.converters=quantize.linear.mx",
                  gather = "--float8.enable_fsdp_float8_all_gather",
                  filter = "--quantize.linear.float8.filter_fqns=";

}  // namespace

TEST_CASE("converters and recipes have one name each in the effective deck") {
    const Config config =
        converted({"--model.converters=float8", "--float8.recipe_name=none", "--mx.recipe_name=mxfp8"})
            .config;
    CHECK(config.model.converters == Words{"quantize.linear.float8"});
    CHECK(config.quantize.linear.float8.recipe_name == "tensorwise");
    CHECK(config.quantize.linear.mx.recipe_name == "mxfp8_cublas");
    CHECK(converted({"--model.converters=MX"}).config.model.converters == Words{"quantize.linear.mx"});
    CHECK(uses_converter(config, "quantize.linear.float8"));
    CHECK_FALSE(uses_converter(config, "quantize.linear.mx"));
}

TEST_CASE("an option of 2025 that names experts needs no converter of its own") {
    const std::string named = "--float8.moe_fqns_prototype=experts";
    const CommandLine both = converted({"--float8.enable_float8_linear", named});
    CHECK(both.config.model.converters == Words{"quantize.linear.float8", "quantize.grouped_mm.float8"});
    CHECK(both.config.quantize.grouped_mm.float8.fqns == Words{"experts"});
    CHECK(both.notices.empty());
    CHECK(converted({"--model.converters=mx", "--mx.moe_fqns_prototype=experts"}).config.model.converters ==
          Words{"quantize.linear.mx", "quantize.grouped_mm.mx"});
    // torchtitan's default
    const CommandLine none = converted({float8, "--float8.moe_fqns_prototype="});
    CHECK(none.config.model.converters == Words{"quantize.linear.float8"});
    CHECK(none.notices.empty());
    // today's name does need it
    CHECK(converted({float8, "--quantize.grouped_mm.float8.fqns=experts"}).notices ==
          Words{"quantize.grouped_mm.float8.fqns has no effect: it needs model.converters = "
                "[\"quantize.grouped_mm.float8\"]"});
    CHECK(converted({mx, named}).config.model.converters == Words{"quantize.linear.mx"});
}

TEST_CASE("options of a converter that the deck does not use: one notice, and none for their defaults") {
    CHECK(converted({"--float8.emulate", "--float8.filter_fqns=x", "--quantize.linear.mx.filter_fqns=output"})
              .notices ==
          Words{"float8.filter_fqns, float8.emulate have no effect: it needs model.converters "
                "= [\"quantize.linear.float8\"]"});
    // it is for linear layers only
    CHECK(converted({"--model.converters=quantize.grouped_mm.float8",
                     "--quantize.grouped_mm.float8.fqns=experts", "--float8.emulate"})
              .notices == Words{"float8.emulate has no effect: it needs model.converters = "
                                "[\"quantize.linear.float8\"]"});
}

TEST_CASE("converters that contradict each other or other options are refused") {
    CHECK(refusal_of({"--model.converters=float8,mx"}) ==
          "model.converters: quantize.linear.float8 and quantize.linear.mx both convert linear layers; leave "
          "one out");
    CHECK(
        refusal_of({"--model.converters=quantize.grouped_mm.mx,quantize.grouped_mm.float8",
                    "--quantize.grouped_mm.mx.fqns=experts", "--quantize.grouped_mm.float8.fqns=experts"}) ==
        "model.converters: quantize.grouped_mm.float8 and quantize.grouped_mm.mx both convert experts; leave "
        "one out");
    CHECK_THAT(refusal_of({"--model.converters=quantize.linear.float"}),
               Contains("did you mean quantize.linear.float8?"));
    for (const std::string recipe : {"rowwise", "rowwise_with_gw_hp"})
        CHECK(refusal_of({float8, gather, "--float8.recipe_name=" + recipe}) ==
              "quantize.linear.float8.enable_fsdp_float8_all_gather = true: needs one scale for a weight, "
              "recipe_name = \"" +
                  recipe + "\" has one for each row; set recipe_name = \"tensorwise\"");
    CHECK(
        refusal_of({float8, gather, "--training.enable_cpu_offload"}) ==
        "quantize.linear.float8.enable_fsdp_float8_all_gather = true: makes 8-bit weights of the optimizer's "
        "weights, which training.enable_cpu_offload = true moves to host memory; remove one of the two");
    CHECK(refusal_of(
              {float8, filter + "output,auto_filter_small_kn", "--float8.recipe_name=rowwise_with_gw_hp"}) ==
          "quantize.linear.float8.filter_fqns: \"auto_filter_small_kn\" has no sizes for recipe_name = "
          "\"rowwise_with_gw_hp\"; name the layers");
    CHECK(refusal_of({mx, "--mx.filter_fqns=auto_filter_small_kn"}) ==
          "quantize.linear.mx.filter_fqns: \"auto_filter_small_kn\" has no sizes for MXFP8; name the layers");
    for (const std::string kind : {"float8", "mx"})
        CHECK(refusal_of({"--model.converters=quantize.grouped_mm." + kind}) ==
              "quantize.grouped_mm." + kind + ".fqns is empty: nothing would be converted; name \"experts\"");
    CHECK_THAT(refusal_of({mx, "--mx.recipe_name=mxfp4_cublas"}),
               Contains("mx.recipe_name = mxfp4_cublas: must be one of mxfp8_cublas,") &&
                   Contains("did you mean mxfp8_cublas?"));
    CHECK_THAT(refusal_of({float8, "--float8.recipe_name=row"}),
               Contains("must be one of tensorwise, rowwise, rowwise_with_gw_hp, none"));
    CHECK(refusal_of({"--training.float8_scaling_type_weight=delayed"}) ==
          "training.float8_scaling_type_weight = delayed: scales that follow from the largest numbers of "
          "earlier steps are not supported (torchtitan removed them in January 2025); set it to \"dynamic\"");
}

TEST_CASE("without the converter, or with other values, the same options are accepted") {
    CHECK(refusal_of({gather, "--float8.recipe_name=rowwise", "--training.enable_cpu_offload"}) ==
          "no error");
    CHECK(refusal_of({filter + "auto_filter_small_kn", "--float8.recipe_name=rowwise_with_gw_hp"}) ==
          "no error");
    CHECK(refusal_of({float8, gather, "--training.dtype=float64"}) == "no error");
    CHECK(refusal_of({float8, filter + "auto_filter_small_kn", "--float8.recipe_name=rowwise"}) ==
          "no error");
    CHECK(refusal_of({float8, "--training.enable_cpu_offload"}) == "no error");
    CHECK(refusal_of({"--model.converters=float8,quantize.grouped_mm.mx",
                      "--quantize.grouped_mm.mx.fqns=experts"}) == "no error");
}

TEST_CASE("a resumed run is told about changed numbers in 8 bits, not about how they are computed") {
    const Config before = converted({float8, "--float8.recipe_name=rowwise"}).config;
    const auto changes = [&](const Words& arguments) {
        return changes_since(deck_text(before), converted(arguments).config);
    };
    const Words same = {float8, "--float8.recipe_name=rowwise"};
    const auto with = [&](const std::string& more) {
        Words arguments = same;
        arguments.push_back(more);
        return arguments;
    };
    CHECK(changes(same).empty());
    CHECK(changes(with("--float8.emulate")).empty());
    CHECK(changes(with("--float8.precompute_float8_dynamic_scale_for_fsdp")).empty());
    CHECK(changes(with("--model.print_after_conversion")).empty());
    CHECK(changes(with("--quantize.linear.mx.fqns=x")).empty());  // not used
    CHECK(changes(with(filter + "output")) ==
          Words{"the run differs from the checkpoint's: quantize.linear.float8.filter_fqns was [], is "
                "[\"output\"]"});
    CHECK(changes({float8, gather}) ==
          Words{"the run differs from the checkpoint's: quantize.linear.float8.enable_fsdp_float8_all_gather "
                "was false, is true; quantize.linear.float8.recipe_name was \"rowwise\", is \"tensorwise\""});
    CHECK(changes({}) == Words{"the run differs from the checkpoint's: model.converters was "
                               "[\"quantize.linear.float8\"], is []"});
}
