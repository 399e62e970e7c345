// SPDX-License-Identifier: Apache-2.0
// Pipelines take the steps of one rank, in every schedule, with sends that are never buffered. They use
// exactly the planned memory. A backward in two halves gives the bits of a whole one.
#include "coeus/file/json.hpp"
#include "coeus/pipeline/from_file.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/one_rank.hpp"
#include "support/part.hpp"
#include "support/support.hpp"

#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

// Some of the shapes that a schedule accepts on `ranks` ranks; one shape if there are many ranks.
std::vector<PipelineShape> shapes_of(const Schedule& schedule, int ranks) {
    if (ranks > 4) return {{ranks, 2 * ranks, schedule.default_virtual_stages}};
    std::vector<PipelineShape> shapes;
    for (const int virtual_stages : {1, 2, 3})
        for (const int micro_batches : {1, 3, 2 * ranks})
            if (const PipelineShape shape = {ranks, micro_batches, virtual_stages}; schedule.accepts(shape))
                shapes.push_back(shape);
    return shapes;
}

}  // namespace

TEST_CASE("pipeline: every schedule takes the steps of one rank") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    int number = 0;
    for (const Schedule& schedule : schedules())
        for (const PipelineShape& shape : shapes_of(schedule, world.size())) {
            ++number;
            MeshCase c = {.mesh = {.pp = world.size()},
                          .model = tiny_config(2 + number % 4, number % 3 == 0)};
            if (c.model.layers + 2 < shape.stages()) c.model.layers = shape.stages() - 2;
            c.pipeline =
                pipeline_of(schedule.name, shape.ranks, shape.microbatches, shape.virtual_stages, c.model);
            c.sequences = shape.microbatches * (1 + number % 2);
            c.local_batches = 1 + number % 5 / 4;
            c.document_mask = number % 4 == 0;
            all.add(c, 2);
        }
    all.check();
}

TEST_CASE("pipeline: every schedule takes the steps of one rank if the first half is frozen") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    int number = 0;
    for (const Schedule& schedule : schedules()) {
        const PipelineShape shape = shapes_of(schedule, world.size()).back();
        MeshCase c = {.mesh = {.pp = world.size()}, .model = tiny_config(shape.stages(), ++number % 2 == 0)};
        std::vector<std::string> frozen = {"tok_embeddings"};
        for (int64_t layer = 0; layer < c.model.layers / 2; ++layer)
            frozen.push_back(fmt::format(R"(layers\.{}\.)", layer));
        c.types.frozen = Frozen(frozen);
        c.pipeline =
            pipeline_of(schedule.name, shape.ranks, shape.microbatches, shape.virtual_stages, c.model);
        c.sequences = shape.microbatches;
        c.local_batches = 2;
        all.add(c, 2);
    }
    all.check();
}

TEST_CASE("pipeline: PyTorch's own tables take the steps of one rank") {
    const Communicator world = Communicator::world("world");
    const auto folder = golden("pipeline");
    if (folder.empty() || world.size() > 4) return;
    const JsonDocument index = JsonDocument::read(folder / "index.json");
    OneRankComparison all(world);
    std::set<std::string> run;  // only the first table of each schedule
    for (const JsonView& entry : index.root()["schedules"].elements()) {
        if (entry.integer("P") != world.size() || !entry.contains("lowered")) continue;
        if (!run.insert(entry.string("schedule")).second) continue;
        // computations only, or with PyTorch's sends, receives and gathers, which are dropped
        for (const char* kind : {"compute", "lowered"}) {
            MeshCase c = {.mesh = {.pp = world.size()}, .model = tiny_config()};
            const int micro_batches = int(entry.integer("M")), virtual_stages = int(entry.integer("V"));
            c.model.layers = world.size() * virtual_stages;
            c.pipeline =
                pipeline_of(entry.string("schedule"), world.size(), micro_batches, virtual_stages, c.model);
            c.pipeline.timetable = read_timetable(folder / entry.string(kind));
            c.sequences = micro_batches;
            all.add(c, 1, {}, entry.string(kind) + ": ");
        }
    }
    all.check();
    CHECK(run.size() == (world.size() == 1 ? 0 : schedules().size()));
}

TEST_CASE("pipeline: a backward in two halves gives the bits of a whole one") {
    const Communicator world = Communicator::world("world");
    std::vector<MeshCase> cases;
    for (const StateTypes& types : {StateTypes{Dtype::f64, Dtype::f64}, StateTypes{Dtype::f32, Dtype::bf16}})
        for (int recipe = 0; recipe < recipe_choices; ++recipe) {
            cases.push_back(
                {.mesh = {.pp = world.size()}, .model = tiny_config(3 + world.size(), true), .types = types});
            set_recipe(cases.back(), recipe);
        }
    Part part("a backward in two halves", world.size(), {1, world.size() > 4 ? 4 : 1});
    for (MeshCase& whole : cases) {
        if (!part.takes_next()) continue;
        INFO(whole.name());
        const DecoderConfig& model = whole.model;
        whole.pipeline = pipeline_of("GPipe", world.size(), 3, 1, model);
        whole.sequences = 3;
        MeshCase halves = whole;
        for (Row& row : halves.pipeline.timetable.rows) {
            Row split;
            for (const Cell& cell : row) {
                if (cell[0].kind == ActionKind::backward)
                    split.emplace_back(Action{ActionKind::backward_input, cell[0].stage, cell[0].microbatch});
                else
                    split.push_back(cell);
            }
            for (const Cell& cell : row)
                if (cell[0].kind == ActionKind::backward)
                    split.emplace_back(
                        Action{ActionKind::backward_weight, cell[0].stage, cell[0].microbatch});
            row = split;
        }
        const Mesh mesh(world.split(0, "world"), whole.mesh);
        MeshRun a(whole, mesh), b(halves, mesh);
        for (const int64_t step : {1, 2, 3}) {
            TestBatch batch = batch_of_step(whole, uint64_t(step));
            CHECK(a.step(step, batch));
            CHECK(b.step(step, batch));
            CHECK(a.engine.scalars().loss == b.engine.scalars().loss);
            CHECK(a.whole(&Storage::gradient) == b.whole(&Storage::gradient));
        }
        CHECK(a.whole(&Storage::master) == b.whole(&Storage::master));
        // both copies of a tied table are equal
        const Storage* table = a.engine.model().shared_storage();
        CHECK((table != nullptr) ==
              (world.size() > 1 && (world.rank() == 0 || world.rank() + 1 == world.size())));
        std::vector<double> first(size_t(model.vocab * model.dim));
        if (table) first = values(table->master);
        const std::vector<double> own = first;
        world.broadcast(Tensor(first.data(), Dtype::f64, {int64_t(first.size())}), 0);
        if (table) CHECK(own == first);
    }
}

TEST_CASE("pipeline: the planned memory is the used memory, and validation has the loss of one rank") {
    const Communicator world = Communicator::world("world");
    for (const Schedule& schedule : schedules()) {
        const std::vector<PipelineShape> shapes = shapes_of(schedule, world.size());
        REQUIRE(!shapes.empty());
        const PipelineShape& shape = shapes.back();
        CAPTURE(schedule.name);
        MeshCase c = {.mesh = {.pp = world.size()}, .model = tiny_config(shape.stages())};
        c.pipeline =
            pipeline_of(schedule.name, shape.ranks, shape.microbatches, shape.virtual_stages, c.model);
        c.sequences = c.validated = shape.microbatches;
        const Mesh mesh(world.split(0, "world"), c.mesh);
        MeshRun many(c, mesh);
        TestBatch batch = batch_of_step(c, 1);
        CHECK(many.step(1, batch));
        const LayerMemory& plan = many.engine.layer_memory();
        int64_t largest = 0;
        size_t entries = 0, owed = 0;
        for (const Frame& frame : many.engine.executor().frames()) {
            CHECK(frame.peak_bytes() > 0);
            CHECK(frame.mark().bytes == 0);
            largest = std::max(largest, frame.peak_bytes());
            entries = std::max(entries, frame.peak_entries());
            owed = std::max(owed, frame.peak_owed());
        }
        CHECK(largest == plan.executor.frame);
        CHECK(entries == plan.executor.frame_entries);
        CHECK(owed == plan.executor.frame_owed);
        CHECK(plan.activations >= int64_t(many.engine.executor().frames().size()) * plan.executor.frame);
        // the batch of validation is larger than a micro-batch
        const double loss = many.evaluate(batch);
        CHECK(many.engine.temporaries().peak() == plan.temporaries);
        CHECK(many.engine.exec().workspace.peak() == plan.workspace);
        c.mesh = {};
        c.pipeline = {};
        MeshRun one(c, mesh_of_one());
        CHECK(one.step(1, batch));
        CHECK(relatively_close(loss, one.evaluate(batch), 1e-11));
    }
}
