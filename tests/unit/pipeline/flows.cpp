// SPDX-License-Identifier: Apache-2.0
// How a stage, its plan and recomputation handle a flow of two tensors.
#include "coeus/pipeline/stage.hpp"
#include "support/catch.hpp"
#include "support/gradcheck.hpp"
#include "support/model.hpp"
#include "support/support.hpp"
#include "support/two_flow_model.hpp"

#include <algorithm>
#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

const StateTypes doubles = {Dtype::f64, Dtype::f64};
constexpr int64_t words = 11;

// Loss and gradients of a forward and backward in exactly the planned memory, which contains NaN before.
std::vector<double> result_of(TwoFlowModel& model, TestBatch& batch) {
    const BatchShape shape = {batch.sequences, batch.seq_len};
    const LayerMemory layers = measure_training(model, shape, shape, {1});
    Exec exec;
    exec.workspace = Arena(layers.workspace, "workspace");
    Frame frame(layers.activations, layers.executor.frame_entries, layers.executor.frame_owed);
    Arena temp(layers.temporaries, "temporaries");
    StepScalars scalars;
    scalars.loss_scale = 1.0 / double(batch.valid_labels());
    poison(frame, layers.activations);
    poison(temp, layers.temporaries);
    cpu_kernels().zero(exec, model.parameters().gradients());
    const Batch view = batch.view();
    Ctx c{.exec = exec, .k = cpu_kernels(), .frame = frame, .temp = temp, .batch = view, .scalars = scalars};
    const Stage stage(model);
    stage.forward(c, {});
    stage.backward(c, {});
    std::vector<double> result = values(model.parameters().gradients());
    result.push_back(scalars.loss);
    StepScalars again;
    again.loss_scale = scalars.loss_scale;
    frame.rewind({0, 0});
    Ctx e{.exec = exec, .k = cpu_kernels(), .frame = frame, .temp = temp, .batch = view, .scalars = again};
    stage.evaluate(e, {});
    CHECK(relatively_close(again.loss, scalars.loss, 1e-14));
    return result;
}

}  // namespace

TEST_CASE("flows: every gradient of a model of two streams against finite differences") {
    for (const bool recompute : {false, true}) {
        CAPTURE(recompute);
        TwoFlowModel model(2, 6, words, doubles, recompute);
        const Stage stage(model);
        const CheckedLayer whole = {[&](Ctx& c, Tensor) {
                                        forward_backward(stage, c);
                                        return Tensor{};
                                    },
                                    [](Ctx&, Tensor) { return Tensor{}; }};
        TestBatch batch(2, 5, words);
        batch.ignore_every(4);
        CHECK(gradcheck(model.parameters(), whole, batch, {.entries = 6, .spread = 0.3}) == "");
    }
}

TEST_CASE("flows: two tensors fit into the planned memory, recomputed or not, with the same bits") {
    TestBatch batch(3, 4, words);
    std::vector<std::vector<double>> results;
    for (const bool recompute : {false, true}) {
        TwoFlowModel model(3, 8, words, doubles, recompute);
        model.allocate(true);
        model.parameters().initialise(5, 1);
        results.push_back(result_of(model, batch));
    }
    CHECK(results[0] == results[1]);
    CHECK(std::ranges::none_of(results[0], [](double value) { return std::isnan(value); }));
}

TEST_CASE("flows: the tensors of a flow are stored one after the other, each in its own memory lines") {
    alignas(64) static std::byte memory[512];
    const Tensor a(nullptr, Dtype::f64, {3, 3}), b(nullptr, Dtype::bf16, {5});
    const Flow flow({a, b});
    CHECK(flow.count() == 2);
    CHECK(flow.bytes() == padded_bytes(72) + padded_bytes(10));
    const Flow placed = flow.placed_at(memory);
    CHECK(placed.all()[0].data == memory);
    CHECK(placed.all()[1].data == memory + padded_bytes(72));
    CHECK(placed.all()[1].dtype == Dtype::bf16);
    CHECK(placed.all()[1].shape == b.shape);
    CHECK(Flow().bytes() == 0);
    CHECK_THROWS_AS(Flow({a, a, a, a, a}), LogicError);
}
