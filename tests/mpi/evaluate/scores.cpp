// SPDX-License-Identifier: Apache-2.0
// Meshes over every axis score the requests of golden/evaluate as lm-evaluation-harness does, and their
// losses of tokens are those of one rank.
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/golden_evaluation.hpp"
#include "support/mesh_run.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

constexpr double tolerance = 1e-9;  // golden/README.md, "evaluate": on a mesh

void compare_on(const MeshShape& shape, const fs::path& file) {
    Mesh mesh(Communicator::world("world"), shape);
    CAPTURE(shape.text(), file.stem().string());
    GoldenEvaluation evaluation(file, mesh);
    // rank 0 alone knows the tasks
    const std::vector<Task> all = evaluation.tasks(AddBos::always),
                            known = mesh.world().rank() == 0 ? all : std::vector<Task>{};
    Scoring scoring(known, evaluation.options(evaluation.context()), mesh.world());
    scoring.run(evaluation.engine());
    const JsonView part = evaluation.document().root()["add_bos_token=true"];
    for (const TaskResult& result : results_of(all, scoring)) {
        CAPTURE(result.task->name);
        const std::vector<double> wanted = golden_scores(part, result.task->name, "");
        REQUIRE(wanted.size() == result.scores.size());
        for (size_t i = 0; i < wanted.size(); ++i)
            CHECK(relatively_close(result.scores[i].log_probability, wanted[i], tolerance));
        if (result.task->kind == TaskKind::document) continue;
        size_t next = 0;
        for (const JsonView& line : part[result.task->name]["scores"].elements())
            for (const JsonView& choice : line.elements())
                CHECK(result.scores[next++].greedy == (choice[size_t(1)].integer() == 1));
    }
    const Engine& engine = evaluation.engine();
    CHECK(engine.used().temporaries <= engine.layer_memory().temporaries);
}

// The scores of as many requests of one row as there are ranks, and one.
std::vector<Score> scores_on(const Mesh& mesh, const DecoderConfig& model, int requests) {
    Task task = {.name = "task", .file = "task.jsonl", .kind = TaskKind::continuation};
    for (int i = 0; i < requests; ++i)
        task.lines.push_back(
            {.requests = {{.context = {1 + i, 2}, .continuation = {3, 4 + i, 5}, .counts = {}, .size = {}}}});
    const ScoringOptions options = {
        .context = 6, .stride = 6, .row_length = 6, .one_in_a_row = true, .sequences = 2};
    Engine engine(model, {.trains = false,
                          .types = {Dtype::f64, Dtype::f64},
                          .validation = {.sequences = 2, .seq_len = 6},
                          .scores_tokens = true,
                          .mesh = mesh.shape(),
                          .rank = mesh.world().rank(),
                          .exchanges = {.expert_capacity = 1}});
    engine.allocate(mesh);
    engine.model().parameters().initialise(5, 1);
    engine.renew_weights();
    Scoring scoring({task}, options, mesh.world());
    CHECK(scoring.rows() == requests);
    scoring.run(engine);
    return scoring.scores();
}

}  // namespace

TEST_CASE("evaluate: every mesh gives the scores of lm-evaluation-harness") {
    const int ranks = Communicator::world("world").size();
    const std::vector<fs::path> files = golden_evaluations();
    size_t next = 0;
    unsigned axes = 0;  // that were compared
    bool experts = false;
    // each mesh with the next model that it can divide
    std::vector<MeshShape> shapes = meshes_of(ranks, {axis::pp, axis::dp_shard, axis::cp, axis::tp});
    shapes.push_back({.dp_shard = ranks, .ep = 2});
    for (const MeshShape& shape : shapes) {
        size_t tried = 0;
        while (tried < files.size() && !GoldenEvaluation::fits(files[next++ % files.size()], shape)) ++tried;
        if (tried == files.size()) continue;  // such as four ranks for two heads of keys
        compare_on(shape, files[(next - 1) % files.size()]);
        for (const Axis axis : all_axes)
            if (shape.degree(axis) > 1) axes |= axis;
        experts = experts || shape.ep > 1;
    }
    CHECK(experts);
    CHECK(axes == (axis::pp | axis::dp_shard | axis::cp | axis::tp));
}

// With room for the mean number of experts' rows, ranks with different numbers of rows in a call would
// disagree on the rounds in which these travel.
TEST_CASE("evaluate: ranks that divide experts evaluate the same number of rows in each call") {
    Communicator world = Communicator::world("world");
    const int ranks = world.size(), requests = ranks + 1;  // rank 0 has 2 rows, the others 1
    DecoderConfig model = tiny_config();
    set_experts(model, 1);
    model.moe.experts = 8;
    model.moe.top_k = 6;
    const Mesh mesh(std::move(world), {.dp_shard = ranks, .ep = 2});
    const std::vector<Score> many = scores_on(mesh, model, requests),
                             one = scores_on(mesh_of_one(), model, requests);
    REQUIRE(many.size() == size_t(requests));
    REQUIRE(one.size() == many.size());
    for (size_t i = 0; i < one.size(); ++i)
        CHECK(relatively_close(many[i].log_probability, one[i].log_probability, tolerance));
}
