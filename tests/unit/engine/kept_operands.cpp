// SPDX-License-Identifier: Apache-2.0
// Weights in 8 bits that are kept for a step: the bits of the results are those without them.
#include "coeus/layers/kept_operands.hpp"

#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/written_operands.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

struct KeptSteps {
    std::map<std::string, std::vector<double>> gradients, weights;
    double loss = 0, validation_loss = 0;
    int quantizations = 0;
    std::string differs_from_plan;
};

KeptSteps steps_of(MeshCase c, bool keeps) {
    c.keeps_operands = keeps;
    MeshRun run(c, mesh_of_one());
    WrittenOperands seen;
    const Observation observation = run.engine.observe(seen);
    KeptSteps all;
    TestBatch batch = batch_of_step(c, 1);
    for (const int64_t step : {1, 2}) CHECK(run.step(step, batch));
    all.gradients = run.whole(&Storage::gradient);
    all.weights = run.whole(&Storage::master);
    all.loss = run.engine.scalars().loss;
    all.validation_loss = run.evaluate(batch);
    all.quantizations = seen.quantizations;
    all.differs_from_plan = use_differs_from_plan(c, run.engine);
    return all;
}

}  // namespace

TEST_CASE("kept operands: steps of one, two and three local batches have the bits of steps without them") {
    for (const Recipe recipe :
         {Recipe::tensorwise, Recipe::rowwise, Recipe::rowwise_with_gw_hp, Recipe::mx_rceil})
        for (const int64_t local_batches : {1, 2, 3}) {
            const bool is_bf16 = (local_batches + int64_t(recipe)) % 2 == 0;
            MeshCase c = {.model = config_of_16s(),
                          .types = {Dtype::f32, is_bf16 ? Dtype::bf16 : Dtype::f32},
                          .local_batches = local_batches};
            set_recipe(c, has_blocks(recipe) ? 4 : 1);
            c.types.precision.linear = recipe;
            c.recompute = {.mode = RecomputeOptions::Mode((local_batches + int64_t(recipe)) % 3)};
            INFO(c.name());
            const KeptSteps plain = steps_of(c, false), kept = steps_of(c, true);
            CHECK(kept.gradients == plain.gradients);
            CHECK(kept.weights == plain.weights);
            CHECK(kept.loss == plain.loss);
            CHECK(kept.validation_loss == plain.validation_loss);
            CHECK(kept.differs_from_plan.empty());
            if (local_batches > 1) CHECK(kept.quantizations < plain.quantizations);
        }
}

TEST_CASE("kept operands: frozen weights, and weights that were changed otherwise, are in their new bits") {
    MeshCase c = {.model = config_of_16s(), .types = {Dtype::f32, Dtype::f32}, .local_batches = 2};
    set_recipe(c, 1);
    c.types.frozen = Frozen({R"(layers\.0\.)"});
    const KeptSteps plain = steps_of(c, false), kept = steps_of(c, true);
    CHECK(kept.gradients == plain.gradients);
    CHECK(kept.weights == plain.weights);
    // the initial weights again
    const auto loss_again = [&](bool keeps) {
        c.keeps_operands = keeps;
        MeshRun run(c, mesh_of_one());
        TestBatch batch = batch_of_step(c, 1);
        CHECK(run.step(1, batch));
        run.engine.model().parameters().initialise(run.engine.exec(), run.engine.kernels(), 6);
        run.engine.renew_weights();
        return run.evaluate(batch);
    };
    CHECK(loss_again(true) == loss_again(false));
}

TEST_CASE("kept operands: the plan has their memory, and none for weights that are gathered") {
    const auto planned = [](int architecture, int recipe, const MeshShape& mesh = {}) {
        MeshCase c = {.mesh = mesh, .model = config_of_16s(), .types = {Dtype::f32, Dtype::f32}};
        set_recipe(c, recipe);
        const EngineOptions options = {.types = c.types,
                                       .training = {.sequences = 1, .seq_len = 64},
                                       .mesh = mesh,
                                       .machine = {.architecture = architecture},
                                       .keeps_operands = true};
        const Engine engine(c.model, options);
        int64_t elements = 0;
        for (const Storage& storage : engine.model().parameters().storages())
            if (storage.recipe() != Recipe::none) elements += storage.shape().count();
        CHECK(elements > 0);
        return double(engine.plan().bytes(term::kept_operands)) / double(elements);
    };
    // a byte for each element, and another one transposed; besides scales and alignment
    CHECK(planned(100, 1) == Approx(1).margin(0.1));
    CHECK(planned(90, 1) == Approx(2).margin(0.1));
    for (const int architecture : {90, 100}) CHECK(planned(architecture, 3) == Approx(2.2).margin(0.2));
    CHECK(planned(100, 4) == Approx(2.1).margin(0.2));
    CHECK(planned(90, 2) == 0);
    CHECK(planned(90, 1, {.dp_shard = 2}) == 0);
}
