// SPDX-License-Identifier: Apache-2.0
// Stages of a model with two streams send two tensors each. Every schedule computes what one rank computes,
// in exactly the planned memory.
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"
#include "support/two_flow_model.hpp"

#include <algorithm>
#include <map>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr StateTypes doubles = {Dtype::f64, Dtype::f64};
constexpr int64_t words = 11, width = 6;
constexpr BatchShape flow_batch = {2, 5};

// One block per stage; the tables and the objective at the ends.
std::vector<ModelPart> parts_of_stages(const Timetable& table, int rank) {
    std::vector<ModelPart> parts;
    for (const int stage : table.placement.stages_of(rank)) {
        const size_t first = stage == 0 ? 0 : size_t(stage) + 1;
        const size_t last = size_t(stage) + (stage + 1 == table.stages() ? 3 : 2);
        parts.push_back({first, last});
    }
    return parts;
}

struct FlowResult {
    double loss = 0;
    std::map<std::string, std::vector<double>> gradients;
};

// Runs all micro-batches of a timetable on this rank's stages.
FlowResult run(const Timetable& table, const Communicator& pipeline, std::vector<TestBatch>& batches,
               bool recompute) {
    const int rank = pipeline.rank();
    TwoFlowModel model(size_t(table.stages()), width, words, doubles, recompute,
                       parts_of_stages(table, rank));
    Exec exec;
    std::vector<Stage> stages;
    for (const ModelPart& part : model.parts()) stages.emplace_back(model, part);
    Executor executor(lower(table), rank, stages, exec);
    const LayerMemory layers = measure_training(model, executor, flow_batch, flow_batch, {1}, mesh_of_one());
    CHECK(layers.executor.flow_tensors == 2);
    model.allocate(true);
    model.parameters().initialise(3, 1);
    cpu_kernels().zero(exec, model.parameters().gradients());
    exec.workspace = Arena(layers.workspace, "workspace");
    executor.allocate(layers.executor, pipeline, Sends::synchronous);
    Arena temp(layers.temporaries, "temporaries");
    std::vector<Batch> views;
    for (TestBatch& batch : batches) views.push_back(batch.view());
    StepScalars scalars;
    scalars.loss_scale = 0.125;
    const Flow flow = model.flow_into(1, flow_batch.count());
    executor.forward_backward(flow, true, [&](int m, Frame& frame, bool /*paired*/) -> Ctx {
        return {.exec = exec,
                .k = cpu_kernels(),
                .frame = frame,
                .temp = temp,
                .batch = views[size_t(m)],
                .scalars = scalars};
    });
    int64_t largest = 0;
    for (const Frame& frame : executor.frames()) largest = std::max(largest, frame.peak_bytes());
    CHECK(largest == layers.executor.frame);
    FlowResult result = {.loss = scalars.loss, .gradients = {}};
    for (const Storage& storage : model.parameters().storages())
        result.gradients[storage.params().front().name] = values(storage.gradient);
    return result;
}

// The same model as a whole, on one rank and without an executor.
FlowResult on_one_rank(size_t blocks, std::vector<TestBatch>& batches) {
    TwoFlowModel model(blocks, width, words, doubles, false);
    const LayerMemory layers = measure_training(model, flow_batch, flow_batch, {1});
    Exec exec;
    model.allocate(true);
    model.parameters().initialise(3, 1);
    cpu_kernels().zero(exec, model.parameters().gradients());
    exec.workspace = Arena(layers.workspace, "workspace");
    StepScalars scalars;
    scalars.loss_scale = 0.125;
    for (TestBatch& batch : batches) {
        const Batch view = batch.view();
        Frame frame(layers.activations, layers.executor.frame_entries);
        Arena temp(layers.temporaries, "temporaries");
        Ctx c{.exec = exec,
              .k = cpu_kernels(),
              .frame = frame,
              .temp = temp,
              .batch = view,
              .scalars = scalars};
        forward_backward(Stage(model), c);
    }
    FlowResult result = {.loss = scalars.loss, .gradients = {}};
    for (const Storage& storage : model.parameters().storages())
        result.gradients[storage.params().front().name] = values(storage.gradient);
    return result;
}

}  // namespace

TEST_CASE("flows: stages that send two tensors compute what one rank computes, in every schedule") {
    const Communicator world = Communicator::world("world");
    const int ranks = world.size(), micro_batches = 2 * ranks;
    std::vector<TestBatch> batches;
    for (int m = 0; m < micro_batches; ++m)
        batches.emplace_back(flow_batch.sequences, flow_batch.seq_len, words, uint64_t(m) + 1);
    for (const Schedule& schedule : schedules())
        for (const bool recompute : {false, true}) {
            CAPTURE(schedule.name, recompute);
            const PipelineShape shape = {ranks, micro_batches, schedule.default_virtual_stages};
            if (!schedule.accepts(shape)) continue;
            const Timetable table = schedule.timetable(shape);
            const FlowResult one = on_one_rank(size_t(table.stages()), batches);
            FlowResult here = run(table, world, batches, recompute);
            // only the last stage knows the loss
            world.all_reduce(Tensor(&here.loss, Dtype::f64, {1}));
            CHECK(relatively_close(here.loss, one.loss, 1e-12));
            CHECK(!here.gradients.empty());
            for (const auto& [name, gradient] : here.gradients) {
                CAPTURE(name);
                CHECK(normalised_error(gradient, one.gradients.at(name)) < 1e-12);
            }
        }
}
