// SPDX-License-Identifier: Apache-2.0
// The engine with Flux: steps, validation and memory as planned, with every recomputation and with
// accumulation.
#include "coeus/engine/engine.hpp"
#include "coeus/predict/record.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/test_images.hpp"

#include <map>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t image_tokens = 9;

EngineOptions image_options(RecomputeOptions::Mode mode, Dtype type = Dtype::f64) {
    return {.types = {.master = type, .compute = type},
            .training = {.sequences = 2, .seq_len = image_tokens},
            .accumulation = 2,
            .validation = {.sequences = 3, .seq_len = image_tokens},
            .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
            .recompute = {.mode = mode}};
}

}  // namespace

TEST_CASE("engine: Flux trains and validates in the memory that was planned, recomputed or not") {
    const ModelConfig model = flux_model(tiny_flux());
    const TestImages images(tiny_flux().sizes(), 4), validated(tiny_flux().sizes(), 3, 7);
    std::vector<double> first_losses;
    for (const auto mode : {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::operations,
                            RecomputeOptions::Mode::blocks}) {
        Engine engine(model, image_options(mode));
        engine.allocate();
        CHECK(
            engine.plan().bytes("image batches") ==
            engine.model().batches().bytes({{2, image_tokens}, 2}, {3, image_tokens}, 1, Backend::cpu).host);
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
        const double before = engine.evaluate(validated.local_batch(0, 3));
        std::vector<double> losses;
        for (int64_t number = 1; number <= 12; ++number) {
            engine.compute_gradients(number, 1e-2, images.counted(),
                                     [&](int64_t i) { return images.local_batch(i * 2, 2); });
            CHECK(engine.update().taken);
            losses.push_back(engine.scalars().loss);
        }
        CHECK(losses.back() < 0.9 * losses.front());
        // a sample that only fills the batch has no loss: that of zero predictions is the mean of squares
        double squares = 0;
        const size_t of_sample = images.target.size() / 4;
        for (size_t i = 0; i < 3 * of_sample; ++i) squares += images.target[i] * images.target[i];
        CHECK(relatively_close(losses.front(), squares / double(images.counted()), 1e-12));
        double of_validated = 0;
        for (size_t i = 0; i < 2 * of_sample; ++i) of_validated += validated.target[i] * validated.target[i];
        CHECK(relatively_close(before, of_validated, 1e-12));
        CHECK_FALSE(engine.evaluate(validated.local_batch(0, 3)) == before);
        CHECK(engine.used().activations == engine.layer_memory().activations);
        CHECK(engine.used().temporaries == engine.layer_memory().temporaries);
        CHECK(engine.used().workspace == engine.layer_memory().workspace);
        if (first_losses.empty()) first_losses = losses;
        CHECK(losses == first_losses);
    }
}

TEST_CASE("engine: recomputation keeps fewer activations of Flux") {
    FluxConfig config = tiny_flux(2, 2);
    config.mlp_ratio = 4;
    std::map<RecomputeOptions::Mode, int64_t> bytes;
    for (const auto mode : {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::operations,
                            RecomputeOptions::Mode::blocks})
        bytes[mode] = Engine(flux_model(config), image_options(mode)).layer_memory().executor.frame;
    CHECK(bytes[RecomputeOptions::Mode::operations] < 0.85 * double(bytes[RecomputeOptions::Mode::nothing]));
    CHECK(bytes[RecomputeOptions::Mode::blocks] < 0.6 * double(bytes[RecomputeOptions::Mode::operations]));
}

TEST_CASE("engine: a step of Flux can be recorded, and trains in bfloat16 and in 8 bits") {
    EngineOptions on_gpu = image_options(RecomputeOptions::Mode::blocks, Dtype::f32);
    on_gpu.machine.backend = Backend::cuda;
    on_gpu.machine.architecture = 90;
    CHECK(record_step(flux_model(tiny_flux()), on_gpu).launches() > 0);

    FluxConfig config = tiny_flux(1, 1);
    config.hidden_size = 64;
    config.axes_dim = {8, 12, 12};
    config.mlp_ratio = 2;
    config.context_in_dim = 32;
    config.in_channels = 32;
    config.text_tokens = 16;
    config.patch_rows = config.patch_columns = 4;
    const TestImages images(config.sizes(), 4);
    std::map<Recipe, double> losses;
    for (const Recipe recipe : {Recipe::none, Recipe::tensorwise, Recipe::rowwise, Recipe::mx_floor})
        for (const auto mode : {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::operations}) {
            CAPTURE(int(recipe), int(mode));
            EngineOptions options = image_options(mode, Dtype::f32);
            options.types.compute = Dtype::bf16;
            options.types.precision.linear = recipe;
            options.training.seq_len = options.validation.seq_len = config.sizes().tokens();
            Engine engine(flux_model(config), options);
            engine.allocate();
            engine.model().parameters().initialise(5, 1);
            engine.renew_weights();
            for (int64_t number = 1; number <= 4; ++number) {
                engine.compute_gradients(number, 1e-2, images.counted(),
                                         [&](int64_t i) { return images.local_batch(i * 2, 2); });
                CHECK(engine.update().taken);
            }
            const double loss = engine.scalars().loss;
            losses.try_emplace(recipe, loss);
            // recomputation changes no bit
            CHECK(loss == losses[recipe]);
            CHECK(relatively_close(loss, losses[Recipe::none], 0.05));
            CHECK((recipe == Recipe::none) == (loss == losses[Recipe::none]));
            CHECK(engine.used().activations == engine.layer_memory().activations);
        }
}

TEST_CASE("engine: frozen parts of Flux stay as they are, and what only they would need is not computed") {
    const FluxConfig config = tiny_flux(2, 2);
    const TestImages images(config.sizes(), 4);
    const auto steps_with = [&](const std::vector<std::string>& frozen) {
        EngineOptions options = image_options(RecomputeOptions::Mode::operations);
        options.types.frozen = Frozen(frozen);
        Engine engine(flux_model(config), options);
        engine.allocate();
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
        std::map<std::string, std::vector<double>> before;
        for (const Storage& storage : engine.model().parameters().storages())
            before[storage.params().front().name] = values(storage.master);
        for (int64_t number = 1; number <= 5; ++number) {
            engine.compute_gradients(number, 1e-2, images.counted(),
                                     [&](int64_t i) { return images.local_batch(i * 2, 2); });
            CHECK(engine.update().taken);
        }
        for (const Storage& storage : engine.model().parameters().storages()) {
            const Param& param = storage.params().front();
            INFO(param.name);
            CHECK((values(storage.master) == before[param.name]) == options.types.frozen.takes(param.name));
        }
        CHECK(engine.used().activations == engine.layer_memory().activations);
        return std::pair(engine.model().first_trained(), engine.layer_memory().activations);
    };
    const auto all = steps_with({}), text = steps_with({"txt_"}),
               late = steps_with({"_in\\.", "double_blocks"});
    CHECK(all.first == 0);
    CHECK(text.first == 0);
    CHECK(late.first == 3);
    CHECK(late.second < all.second);
}
