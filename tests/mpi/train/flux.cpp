// SPDX-License-Identifier: Apache-2.0
// Flux on ranks that divide its layers, its parameters, the data and the tokens of each sample: it takes the
// steps of one rank, in the planned memory. It resumes from its checkpoint on another mesh.
#include "coeus/comm/together.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/io/checkpoint.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"
#include "support/test_images.hpp"

#include <algorithm>
#include <cmath>
#include <map>

using namespace coeus;
using namespace coeus::test;

namespace {

// 4 tokens of text and 8 patches, 4 heads.
FluxConfig flux_on_mesh() {
    FluxConfig config = tiny_flux(3, 3);
    config.hidden_size = 16;
    config.num_heads = 4;
    config.axes_dim = {0, 2, 2};
    config.text_tokens = 4;
    config.patch_rows = 2;
    config.patch_columns = 4;
    return config;
}

// Samples of a step on all ranks together; twice for each local batch.
constexpr int64_t local_samples = 8, accumulated = 2;

// Each sample is a micro-batch.
PipelineShape pipeline_shape(const char* schedule, int ranks, int64_t samples) {
    return {ranks, int(samples), find_schedule(schedule)->default_virtual_stages};
}

class FluxOnMesh {
public:
    struct Options {
        ContextExchange exchange = ContextExchange::all_gather;
        Balancing balancing = Balancing::head_tail;
        RecomputeOptions::Mode recompute = RecomputeOptions::Mode::nothing;
        const char* optimizer = "AdamW";
        const char* schedule = "1F1B";
    };
    FluxOnMesh(const Mesh& mesh, const Options& options)
        : engine_(flux_model(flux_on_mesh()), all(mesh, options)) {
        engine_.allocate(mesh);
        engine_.model().parameters().initialise(5, 1);
        // modulations begin at zero, and would hide the blocks
        for (Storage& storage : engine_.model().parameters().storages()) perturb(storage);
        engine_.renew_weights();
    }

    Engine& engine() { return engine_; }
    std::vector<CheckpointTensor> state() const {
        return checkpoint_tensors(engine_.model().parameters(), true);
    }
    std::vector<double> take_steps(int64_t first, int64_t last) {
        std::vector<double> losses;
        for (int64_t step = first; step <= last; ++step) {
            compute_gradients(step);
            CHECK(engine_.update().taken);
            losses.push_back(engine_.scalars().loss);
        }
        return losses;
    }
    void compute_gradients(int64_t step) {
        const TestImages images(flux_on_mesh().sizes(), accumulated * local_samples, uint64_t(step));
        const int64_t own = engine_.options().training.sequences,
                      first = accumulated * own * engine_.mesh().rank(axis::dp);
        engine_.compute_gradients(step, 1e-2, images.counted(),
                                  [&](int64_t i) { return images.local_batch(first + i * own, own); });
    }
    // The gradients of a step that is not taken, by name.
    std::map<std::string, std::vector<double>> gradients(int64_t step) {
        compute_gradients(step);
        return whole_parameters(engine_, &Storage::gradient);
    }
    double validate() {
        const TestImages images(flux_on_mesh().sizes(), 2, 99);
        const double own = engine_.evaluate(images.local_batch(0, 2));
        return engine_.mesh()[axis::cp].all_reduce(engine_.mesh()[axis::pp].all_reduce(own));
    }
    bool uses_what_was_planned() const {
        const LayerMemory used = engine_.used(), &planned = engine_.layer_memory();
        return used.activations == planned.activations && used.temporaries == planned.temporaries &&
               used.workspace == planned.workspace;
    }

private:
    static EngineOptions all(const Mesh& mesh, const Options& asked) {
        const MeshShape& shape = mesh.shape();
        const int64_t own = local_samples / shape.size(axis::dp), tokens = flux_on_mesh().sizes().tokens();
        EngineOptions options = {
            .types = {.master = Dtype::f64, .compute = Dtype::f64},
            .training = {.sequences = own, .seq_len = tokens},
            .accumulation = accumulated,
            .validation = {.sequences = 2, .seq_len = tokens},
            .optimizer = {.name = asked.optimizer, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
            .mesh = shape,
            .rank = mesh.world().rank(),
            .exchanges = {.context = {.exchange = asked.exchange, .balancing = asked.balancing}},
            .recompute = {.mode = asked.recompute}};
        if (shape.pp > 1) {
            options.pipeline.timetable =
                find_schedule(asked.schedule)->timetable(pipeline_shape(asked.schedule, shape.pp, own));
            options.pipeline.parts =
                flux_model(flux_on_mesh())->split(options.pipeline.timetable.stages(), {});
            options.pipeline.sends = Sends::synchronous;
        }
        return options;
    }
    static void perturb(Storage& storage) {
        for (const OwnedRun& run : storage.runs())
            for (int64_t i = 0; i < run.rows * storage.master.cols(); ++i) {
                const int64_t cols = storage.master.cols(), at = run.first * cols + i,
                              number = (run.first_row + i / cols) * cols + run.first_col + i % cols;
                set_element(storage.master, at,
                            element(storage.master, at) +
                                0.2 * std::sin(double(number) + double(run.param->name.size())));
            }
    }

    Engine engine_;
};

}  // namespace

TEST_CASE("flux: ranks that divide layers, parameters, data and samples take the steps of one rank") {
    const Communicator world = Communicator::world("world");
    const ModelConfig model = flux_model(flux_on_mesh());
    const auto modes = {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::operations,
                        RecomputeOptions::Mode::blocks};
    const std::vector<MeshShape> meshes =
        meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp});
    for (const char* optimizer : {"AdamW", "Muon"}) {
        if (optimizer == std::string("Muon") && world.size() > 4) continue;
        FluxOnMesh one(mesh_of_one(), {.optimizer = optimizer});
        const std::vector<double> of_one = one.take_steps(1, 2);
        const double validated = one.validate();
        const std::map<std::string, std::vector<double>> gradients = one.gradients(3);
        size_t number = 0;
        const bool is_muon = optimizer == std::string("Muon");
        // not every mesh of many ranks
        const size_t distance = world.size() > 4 || is_muon ? 5 : world.size() > 2 ? 2 : 1;
        for (size_t i = 0; i < meshes.size(); i += distance)
            for (const ContextExchange exchange :
                 {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads}) {
                const MeshShape& shape = meshes[i];
                const bool by_heads = exchange == ContextExchange::heads;
                if (exchange != ContextExchange::all_gather && (shape.cp == 1 || is_muon)) continue;
                if (!model->refusal({.context = shape.cp, .context_by_heads = by_heads}).empty()) continue;
                const auto mode = *(modes.begin() + number++ % modes.size());
                INFO(shape.text() << ", " << optimizer << ", exchange " << int(exchange) << ", recomputation "
                                  << int(mode));
                const Mesh mesh(world.split(0, "world"), shape);
                FluxOnMesh run(mesh, {.exchange = exchange, .recompute = mode, .optimizer = optimizer});
                const std::vector<double> losses = run.take_steps(1, 2);
                for (size_t step = 0; step < losses.size(); ++step)
                    CHECK(relatively_close(losses[step], of_one[step], 1e-11));
                CHECK(relatively_close(run.validate(), validated, 1e-11));
                for (const auto& [name, gradient] : run.gradients(3)) {
                    INFO(name);
                    CHECK(normalised_error(gradient, gradients.at(name)) <= 1e-9);
                }
                CHECK(run.uses_what_was_planned());
            }
    }
}

TEST_CASE("flux: every pipeline schedule computes the gradients of one rank") {
    const Communicator world = Communicator::world("world");
    if (world.size() > 4) return;  // not enough layers for most schedules
    FluxOnMesh one(mesh_of_one(), {});
    const std::map<std::string, std::vector<double>> of_one = one.gradients(1);
    bool recomputes = false;
    for (const Schedule& schedule : schedules()) {
        const PipelineShape shape = pipeline_shape(schedule.name, world.size(), local_samples);
        const int64_t most = flux_model(flux_on_mesh())->all_layers() + 2;
        if (!schedule.accepts(shape) || shape.ranks * shape.virtual_stages > most) continue;
        recomputes = !recomputes;
        INFO(schedule.name << ", recomputed blocks: " << recomputes);
        const Mesh mesh(world.split(0, "world"), {.pp = world.size()});
        FluxOnMesh run(mesh, {.recompute = recomputes ? RecomputeOptions::Mode::blocks
                                                      : RecomputeOptions::Mode::operations,
                              .schedule = schedule.name});
        for (const auto& [name, gradient] : run.gradients(1)) {
            INFO(name);
            CHECK(normalised_error(gradient, of_one.at(name)) <= 1e-9);
        }
        CHECK(relatively_close(run.validate(), one.validate(), 1e-11));
        CHECK(run.uses_what_was_planned());
    }
}

TEST_CASE("flux: a checkpoint of one mesh resumes on another with the losses of one rank") {
    const Communicator world = Communicator::world("world");
    const TemporaryFolder own;
    const CheckpointStore store(broadcast_text(world, own.path().string()), 0, world);
    FluxOnMesh one(mesh_of_one(), {});
    const std::vector<double> of_one = one.take_steps(1, 4);
    const int ranks = world.size();
    const Mesh from(world.split(0, "world"), {.dp_shard = ranks}), to(world.split(0, "world"), {.pp = ranks});
    {
        FluxOnMesh run(from, {});
        run.take_steps(1, 2);
        store.save(record_of(2), run.state());
    }
    FluxOnMesh resumed(to, {});
    const auto loaded = store.load_newest(resumed.state());
    REQUIRE(loaded.has_value());
    resumed.engine().renew_weights();
    const std::vector<double> losses = resumed.take_steps(3, 4);
    for (size_t i = 0; i < 2; ++i) CHECK(relatively_close(losses[i], of_one[2 + i], 1e-11));
    world.barrier();  // the folder is removed
}
