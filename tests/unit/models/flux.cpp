// SPDX-License-Identifier: Apache-2.0
// What is known of Flux before it is built, and that it is built so: sizes, stages, checkpoints, refusals.
#include "coeus/models/flux.hpp"

#include "support/catch.hpp"
#include "support/gradcheck.hpp"
#include "support/support.hpp"
#include "support/test_images.hpp"

#include <functional>
#include <set>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

std::string flux_error(const std::function<void(FluxConfig&)>& change) {
    FluxConfig config = tiny_flux();
    change(config);
    try {
        config.validate();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("flux: flavours have the published sizes, and as many FLOPs of an image as their formula") {
    const auto image = [](const FluxConfig& config, const ModelConfig& model) {
        return model->flops_per_token(config.sizes().tokens()) * double(config.sizes().tokens());
    };
    const auto check = [&](const char* flavor, int64_t parameters, double flops) {
        INFO(flavor);
        const FluxConfig& config = find_flux_flavor(flavor);
        const ModelConfig model = flux_model(config);
        CHECK(model->parameters() == parameters);
        CHECK(model->active_parameters() == parameters);
        CHECK(image(config, model) == Approx(flops).epsilon(1e-13));
        CHECK(model->name() == std::string("flux ") + flavor);
    };
    check("flux-dev", 11891178560, 31043031662592);
    check("flux-schnell", 11891178560, 20420235362304);
    check("flux-debug", 258286144, 377676103680);
    FluxConfig guided = find_flux_flavor("flux-dev");
    guided.guidance_embed = true;
    CHECK(flux_model(guided)->parameters() == 11901408320);
    CHECK(flux_model(guided)->flops_per_token(768) >
          flux_model(find_flux_flavor("flux-dev"))->flops_per_token(768));
    CHECK_THROWS_WITH(
        find_flux_flavor("flux-debu"),
        Contains("model.flavor = \"flux-debu\": flux has no such flavour; did you mean \"flux-debug\"? "
                 "known are flux-debug, flux-dev, flux-schnell"));
    CHECK_THAT(flux_model(guided)->shapes(),
               Contains("hidden size 3072, 24 heads, 19 double and 38 single blocks, ffn 12288") &&
                   Contains("512 text tokens of 4096, 16 x 16 patches of 64"));
}

TEST_CASE("flux: a configuration that is not valid is refused by the name of its field") {
    CHECK(flux_error([](FluxConfig&) {}) == "");
    CHECK_THAT(
        flux_error([](FluxConfig& c) { c.num_heads = 5; }),
        Contains("model.flux.num_heads = 5: must divide model.flux.hidden_size = 12") && Contains("4 or 6"));
    CHECK_THAT(
        flux_error([](FluxConfig& c) {
            c.axes_dim = {2, 4, 2};
        }),
        Contains(
            "model.flux.axes_dim = [2, 4, 2]: must add up to the width of a head, hidden_size / num_heads = "
            "12 / 2 = 6, but make 8"));
    CHECK_THAT(flux_error([](FluxConfig& c) { c.axes_dim = {1, 3, 2}; }), Contains("must be even numbers"));
    CHECK_THAT(flux_error([](FluxConfig& c) { c.mlp_ratio = 1.3; }), Contains("mlp_ratio = 1.3: times"));
    CHECK_THAT(flux_error([](FluxConfig& c) { c.mlp_ratio = -1; }),
               Contains("must be greater than 0 (usual: 4)"));
    CHECK_THAT(flux_error([](FluxConfig& c) { c.in_channels = 6; }), Contains("must be a multiple of 4"));
    CHECK_THAT(flux_error([](FluxConfig& c) { c.depth_single_blocks = 0; }),
               Contains("depth_single_blocks = 0: must be from 1 to"));
    CHECK(flux_error([](FluxConfig& c) { c.depth = 0; }) == "");
    CHECK_THAT(flux_error([](FluxConfig& c) {
                   c.hidden_size = 1 << 24, c.num_heads = 1 << 23, c.axes_dim = {0, 2, 0};
               }),
               Contains("parameters are more than the maximum"));
    const ModelConfig model = flux_model(tiny_flux());
    CHECK_THROWS_WITH(model->require_countable({int64_t(1) << 56, 9}), Contains("training.local_batch_size"));
    CHECK_NOTHROW(model->require_countable({2, 9}));
}

TEST_CASE("flux: ranks divide layers, parameters, data and the tokens of a sample, but no matrices") {
    FluxConfig config = tiny_flux();  // 3 tokens of text, 6 patches, 2 heads
    const ModelConfig model = flux_model(config);
    CHECK(model->refusal({}) == "");
    CHECK(model->refusal({.context = 3}) == "");
    CHECK_THAT(
        model->refusal({.tensor = 2}),
        Contains(
            "parallelism.tensor_parallel_degree = 2: flux has no tensor parallelism; set it to 1, and use "
            "data_parallel_shard_degree or context_parallel_degree"));
    CHECK_THAT(
        model->refusal({.context = 2}),
        Contains(
            "parallelism.context_parallel_degree = 2: must divide the 3 tokens of text and the 6 patches"));
    CHECK_THAT(model->refusal({.context = 3, .context_by_heads = true}), Contains("the 2 heads"));
    CHECK_THAT(model->refusal({.expert = 2}), Contains("flux tiny has no experts"));
    CHECK(model->attends_to_all());
    CHECK(model->streams() == std::vector<int64_t>{3, 6});
}

TEST_CASE("flux: stages divide the blocks of both kinds, evenly or by their names") {
    const ModelConfig model = flux_model(tiny_flux(2, 3));
    CHECK(model->segments() == 7);
    CHECK(model->all_layers() == 5);
    CHECK(model->split(1, {}) == std::vector<ModelPart>{model.whole()});
    const std::vector<ModelPart> parts = {{0, 2}, {2, 4}, {4, 7}};
    CHECK(model->split(3, {}) == std::vector<ModelPart>{{0, 3}, {3, 5}, {5, 7}});
    CHECK(model->layers_to_split({0, 3}) == 2);
    CHECK(model->layers_to_split({5, 7}) == 1);
    CHECK(model->text({0, 2}) == "input, double_blocks.0");
    CHECK(model->text({1, 5}) == "double_blocks.0 to double_blocks.1, single_blocks.0 to single_blocks.1");
    CHECK(model->text({5, 7}) == "single_blocks.2, final_layer");
    CHECK(model->split({{"input", "double_blocks.0"},
                        {"double_blocks.1", "single_blocks.0"},
                        {"single_blocks.1", "single_blocks.2", "final_layer"}}) == parts);
    CHECK_THROWS_WITH(
        model->split({{"input", "single_blocks.9"}}),
        Contains("\"single_blocks.9\" is not a module; did you mean \"single_blocks.0\"?") &&
            Contains("input, double_blocks.0 to double_blocks.1, single_blocks.0 to single_blocks.2, "
                     "final_layer"));
    CHECK_THROWS_WITH(model->split(9, {}), Contains("model.flux.depth + model.flux.depth_single_blocks = 5"));
    CHECK(model->kinds_of_segments() == std::vector<int64_t>{-1, 0, 0, 1, 2, 2, -2});

    // the stages together have the storages of the whole, each once, and the same blocks
    std::multiset<std::string> of_stages, of_whole;
    for (const ModelPart& part : parts) {
        const auto stage = model->build({}, 1, {}, {part}, {});
        for (const Storage& storage : stage->parameters().storages())
            of_stages.insert(storage.params().front().name);
        for (size_t i = 0; i < stage->segments().size(); ++i) {
            const Segment& segment = stage->segments()[i];
            CHECK((segment.block || segment.objective) == (i >= part.first && i < part.last));
        }
    }
    const auto whole = model->build({}, 1, {}, {model.whole()}, {});
    for (const Storage& storage : whole->parameters().storages())
        of_whole.insert(storage.params().front().name);
    CHECK(of_stages == of_whole);
    CHECK(of_whole.contains("double_blocks.1.txt_attn.norm.query_norm.weight"));
}

TEST_CASE("flux: a checkpoint's description names what has another shape, and no more than that") {
    const FluxConfig config = tiny_flux();
    const ModelConfig model = flux_model(config);
    FluxConfig other = config;
    other.text_tokens = 77;
    other.qk_norm_eps = 1e-5;
    CHECK(model->other_shape(flux_model(other)->description(), "RUN") == "");
    other.depth = 3;
    CHECK(model->other_shape(flux_model(other)->description(), "RUN") == "depth is 1 in this run, 3 there");
    CHECK_THAT(model->description(), Contains(R"("family":"flux","flavor":"tiny","hidden_size":12)") &&
                                         Contains(R"("axes_dim_1":4)") && Contains(R"("patch_columns":3)"));
    CHECK_THROWS_WITH(model->other_shape(ModelConfig(tiny_config())->description(), "RUN"),
                      Contains("RUN (model): family must be \"flux\", is \"llama3\""));
    CHECK_THROWS_WITH(model->other_shape(R"({"family":"flux","flavor":"x"})", "RUN"),
                      Contains("hidden_size"));
    CHECK_THROWS_AS(require_decoder(model, "training on text"), ConfigError);
}

TEST_CASE(
    "flux: every gradient of the model against finite differences, recomputed or not, with guidance or not") {
    FluxConfig config = tiny_flux();
    for (const bool guidance : {false, true})
        for (const Recompute recompute : {Recompute::nothing, Recompute::operations, Recompute::block}) {
            CAPTURE(guidance, int(recompute));
            config.guidance_embed = guidance;
            Flux model(config, {Dtype::f64, Dtype::f64}, {}, {{0, 5}}, std::vector<Recompute>(3, recompute));
            model.allocate_tables(host_device());
            const Stage stage(model);
            const CheckedLayer whole = {[&](Ctx& c, Tensor) {
                                            forward_backward(stage, c);
                                            return Tensor{};
                                        },
                                        [](Ctx&, Tensor) { return Tensor{}; }};
            const TestImageBatch images(TestImages(config.sizes(), 3));
            CHECK(gradcheck(model.parameters(), whole, images.batch(), {.entries = 2, .spread = 0.3}) == "");
        }
}

TEST_CASE(
    "flux: initial values: modulations and the final layer are zero, so that blocks do nothing at first") {
    Flux model(tiny_flux(), {Dtype::f64, Dtype::f64}, {}, {{0, 5}});
    model.allocate(true);
    model.parameters().initialise(3, 1);
    for (const Storage& storage : model.parameters().storages()) {
        const Param& param = storage.params().front();
        INFO(param.name);
        const std::vector<double> all = values(storage.master);
        const double largest =
            std::fabs(*std::ranges::max_element(all, {}, [](double x) { return std::fabs(x); }));
        const bool is_zero = param.role == ParamRole::bias || param.name.find("mod") != std::string::npos ||
                             param.name.find("final_layer") != std::string::npos;
        if (is_zero) {
            CHECK(largest == 0);
        } else if (param.role == ParamRole::norm) {
            CHECK(std::ranges::count(all, 1.0) == param.shape.count());
        } else if (param.name.find("time_in") == 0 || param.name.find("vector_in") == 0) {
            CHECK(largest > 0.02);
            CHECK(largest < 0.12);
        } else {
            const double bound = std::sqrt(6.0 / double(param.shape[0] + param.shape[1]));
            CHECK(largest <= bound);
            CHECK(largest > 0.8 * bound);
        }
        CHECK((param.role == ParamRole::output) == (param.name == "final_layer.linear.weight"));
        CHECK(param.groups == (param.name.find("qkv.weight") != std::string::npos ? 3 : 1));
    }
}
