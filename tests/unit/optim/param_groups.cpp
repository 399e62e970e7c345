// SPDX-License-Identifier: Apache-2.0
// The parameters that a group takes, the effect of its options, and refusals.
#include "coeus/optim/param_groups.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// The kinds of parameters of a model. All weights are 1; gradients are 0 unless they are set.
struct Kinds {
    Parameters parameters{{Dtype::f64, Dtype::f64}};
    Exec exec;

    explicit Kinds(const ParamGroups& groups) {
        const auto add = [&](const char* name, const Shape& shape, ParamRole role) {
            parameters.add({.name = name, .shape = shape, .init = Init::ones(), .role = role});
        };
        add("tok_embeddings.weight", {5, 4}, ParamRole::embedding);
        add("layers.0.attention_norm.weight", {4}, ParamRole::norm);
        parameters.add({{.name = "layers.0.wq.weight", .shape = {4, 4}, .init = Init::ones()},
                        {.name = "layers.0.wk.weight", .shape = {2, 4}, .init = Init::ones()}});
        add("layers.0.wo.bias", {4}, ParamRole::bias);
        add("output.weight", {5, 4}, ParamRole::output);
        exec.workspace = Arena(1 << 16, "workspace");
        groups.attach(parameters);
        parameters.allocate(true);
        parameters.initialise(1, 1);
    }
    const Storage& storage_of(const std::string& name) const {
        for (const Storage& storage : parameters.storages())
            for (const Param& param : storage.params())
                if (param.name == name) return storage;
        throw LogicError("no parameter " + name);
    }
    // The first weight after a step in which all gradients have this value.
    double after_step(const ParamGroups& groups, const std::string& name, double gradient) {
        const Storage& storage = storage_of(name);
        for (int64_t i = 0; i < storage.gradient.count(); ++i) set_element(storage.gradient, i, gradient);
        groups.update(exec, cpu_kernels(), parameters, groups.begin_step(1, 0.1, 1));
        return element(storage.master, 0);
    }
};

std::string refusal(const OptimizerOptions& options, const std::vector<ParamGroupOptions>& groups) {
    try {
        Kinds kinds(ParamGroups(options, 0, groups));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

const OptimizerOptions plain = {.lr = 0.1, .weight_decay = 0.5};

}  // namespace

TEST_CASE("weight decay can leave out norms, biases and embeddings") {
    const std::pair<const char*, const char*> kinds[] = {{"embedding", "tok_embeddings.weight"},
                                                         {"norm", "layers.0.attention_norm.weight"},
                                                         {"matrix", "layers.0.wq.weight"},
                                                         {"bias", "layers.0.wo.bias"},
                                                         {"output", "output.weight"}};
    for (const auto& [role, name] : kinds) {
        OptimizerOptions options = plain;
        options.weight_decay_exclude = {role};
        const ParamGroups groups(options), all(plain);
        for (const auto& [other_role, other] : kinds) {
            CAPTURE(role, other);
            // without a gradient there is only the decay
            CHECK(Kinds(groups).after_step(groups, other, 0) == (other == name ? 1 : 1 - 0.1 * 0.5));
            CHECK(Kinds(all).after_step(all, other, 0) == 1 - 0.1 * 0.5);
        }
    }
}

TEST_CASE("a group has its own list of parameters without weight decay") {
    OptimizerOptions base = plain, of_group = plain;
    base.weight_decay_exclude = {"bias", "embedding"};
    of_group.weight_decay_exclude = {"norm"};
    const ParamGroups groups(base, 0, {{.pattern = "layers", .roles = {}, .optimizer = of_group}});
    // without a gradient there is only the decay
    const auto after_step = [&](const char* name) { return Kinds(groups).after_step(groups, name, 0); };
    CHECK(after_step("layers.0.attention_norm.weight") == 1);
    CHECK(after_step("layers.0.wo.bias") == 1 - 0.1 * 0.5);
    CHECK(after_step("tok_embeddings.weight") == 1);
    CHECK(after_step("output.weight") == 1 - 0.1 * 0.5);
}

TEST_CASE("a parameter belongs to the first group that takes it, by pattern and by role") {
    OptimizerOptions fast = plain, slow = plain, adam = plain;
    fast.lr = 0.2;
    slow.lr = 0.05;
    adam.name = "Adam";
    fast.weight_decay = slow.weight_decay = 0;
    const ParamGroups groups(plain, 0,
                             {{.pattern = "w[qk]", .roles = {}, .optimizer = fast},
                              {.pattern = "layers", .roles = {"norm", "matrix"}, .optimizer = slow},
                              {.pattern = "", .roles = {"embedding"}, .optimizer = adam}});
    // the first step of Adam equals the learning rate, whatever the gradient
    const auto step_of = [&](const char* name) { return 1 - Kinds(groups).after_step(groups, name, 3); };
    CHECK(close(step_of("layers.0.wq.weight"), 0.2, 1e-7));
    CHECK(close(step_of("layers.0.wk.weight"), 0.2, 1e-7));
    CHECK(close(step_of("layers.0.attention_norm.weight"), 0.05, 1e-7));
    CHECK(close(step_of("layers.0.wo.bias"), 0.1 + 0.05, 1e-7));  // with the decay
    CHECK(close(step_of("tok_embeddings.weight"), 0.1, 1e-7));    // its decay is added to the gradient
    CHECK(close(step_of("output.weight"), 0.1 + 0.05, 1e-7));
    const Kinds kinds(groups);
    CHECK(groups.text(kinds.parameters) == "Adam for 1 parameter, AdamW for 5 parameters");
    CHECK(groups.num_optimizers(kinds.parameters) == 2);
    const ParamGroups alike(plain, 0, {{.pattern = "w[qk]", .roles = {}, .optimizer = fast}});
    CHECK(alike.num_optimizers(Kinds(alike).parameters) == 1);
}

TEST_CASE("each group has its own learning rate and bias correction") {
    OptimizerOptions other = plain;
    other.lr = 0.3;
    other.beta1 = 0.5;
    other.beta2 = 0.75;
    const ParamGroups groups(plain, 0, {{.pattern = "norm", .roles = {}, .optimizer = other}});
    const StepScalars scalars = groups.begin_step(2, 0.01, 1);
    CHECK(scalars.learning_rate == 0.01);
    CHECK(scalars.groups[0].learning_rate == 0.01);
    CHECK(relatively_close(scalars.groups[0].bias_correction1, 1 - 0.81, 1e-14));
    CHECK(relatively_close(scalars.groups[1].learning_rate, 0.03, 1e-14));
    CHECK(scalars.groups[1].bias_correction1 == 0.75);
    CHECK(scalars.groups[1].bias_correction2 == 1 - 0.5625);
}

TEST_CASE("moments in bfloat16 are accepted for weights in float32 or bfloat16") {
    OptimizerOptions narrow = plain;
    narrow.implementation = "fused_opt_states_bf16";
    for (const auto& [master, moments] :
         {std::pair(Dtype::f32, Dtype::bf16), std::pair(Dtype::bf16, Dtype::bf16)}) {
        Parameters parameters({master, Dtype::bf16});
        const Storage& storage = parameters.add({.name = "w", .shape = {3, 3}, .init = Init::ones()});
        ParamGroups(narrow).attach(parameters);
        REQUIRE(storage.kept().size() == 2);
        for (const Moment& moment : storage.kept()) CHECK(moment.dtype == moments);
        const Parameters::Bytes bytes = parameters.bytes(true);
        CHECK(bytes.moments == 2 * 64);  // 9 elements of 2 bytes, padded
    }
}

TEST_CASE("impossible groups are refused by name") {
    const auto group = [](const char* pattern, std::vector<std::string> roles = {},
                          const char* optimizer = "AdamW") {
        ParamGroupOptions g = {.pattern = pattern, .roles = std::move(roles), .optimizer = plain};
        g.optimizer.name = optimizer;
        return g;
    };
    CHECK(refusal(plain, {group("w[qk]")}) == "");
    CHECK_THAT(refusal(plain, {group("w[qk]"), group("wx")}),
               Contains("optimizer.param_groups: pattern = \"wx\": it takes no parameter, except those"));
    CHECK_THAT(refusal(plain, {group("norm", {"bias"})}), Contains("pattern = \"norm\", roles = \"bias\""));
    // parameters of an earlier group are not available
    CHECK_THAT(refusal(plain, {group("layers"), group("wq")}),
               Contains("pattern = \"wq\": it takes no parameter"));
    CHECK_THAT(refusal(plain, {group("w(")}), Contains("pattern = \"w(\": is not a regular expression"));
    CHECK_THAT(refusal(plain, {group("wq", {}, "Lion")}),
               Contains("\"Lion\": must be one of AdamW, Adam, Muon"));
    OptimizerOptions still = plain;
    still.lr = 0;
    CHECK_THAT(refusal(still, {group("wq")}), Contains("optimizer.lr must not be 0"));
    CHECK_THAT(refusal(plain, std::vector<ParamGroupOptions>(StepScalars::most_groups, group("wq"))),
               Contains("too many groups; at most 32 kinds"));
}
