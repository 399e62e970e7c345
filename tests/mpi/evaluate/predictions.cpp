// SPDX-License-Identifier: Apache-2.0
// The logits that Engine::predict() gives on a mesh are those of one rank, in float64, wherever the place is:
// the ranks that divide the vocabulary gather all columns, and of those that divide a sequence one has it.
#include "coeus/engine/engine.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"

#include <memory>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr BatchShape predicted = {.sequences = 2, .seq_len = 16, .masks_documents = true};

std::unique_ptr<Engine> predicting_engine(const DecoderConfig& model, const Mesh& mesh) {
    EngineOptions options = {.trains = false,
                             .types = {Dtype::f64, Dtype::f64},
                             .validation = predicted,
                             .predicts = true,
                             .mesh = mesh.shape(),
                             .rank = mesh.world().rank()};
    if (options.mesh.pp > 1) options.pipeline = pipeline_of("1F1B", options.mesh.pp, 1, 1, model);
    auto engine = std::make_unique<Engine>(model, options);
    engine->allocate(mesh);
    engine->model().parameters().initialise(engine->exec(), engine->kernels(), 5);
    engine->renew_weights();
    return engine;
}

}  // namespace

TEST_CASE("predict: every mesh gives the logits of one rank, whatever rank has the place") {
    const int ranks = Communicator::world("world").size();
    const std::vector<int64_t> all_places[] = {{0, 15}, {6, 9}, {4, 3}};
    int number = 0;
    for (const MeshShape& shape : meshes_of(ranks, {axis::pp, axis::dp_shard, axis::cp, axis::tp})) {
        CAPTURE(shape.text());
        DecoderConfig model = tiny_config();
        model.layers = 4;
        model.grouped().heads = model.grouped().kv_heads = 4;
        if (number++ % 2 == 1) set_experts(model, 1);
        const Mesh mesh(Communicator::world("world"), shape);
        const std::unique_ptr<Engine> one = predicting_engine(model, mesh_of_one()),
                                      divided = predicting_engine(model, mesh);
        TestBatch batch(predicted.sequences, predicted.seq_len, model.vocab);
        batch.split_documents(7, false);
        for (const std::vector<int64_t>& places : all_places) {
            CAPTURE(places);
            const std::vector<Tensor> wanted = one->predict(batch.local_batch(0, 2), places),
                                      found = divided->predict(batch.local_batch(0, 2), places);
            int64_t here = 0;
            for (size_t row = 0; row < places.size(); ++row) {
                if (!found[row]) continue;
                ++here;
                CHECK(normalised_error(values(found[row]), values(wanted[row])) <= 1e-12);
            }
            CHECK(mesh.world().all_reduce(here) == 2 * ranks / (shape.pp * shape.cp));
        }
        CHECK(divided->used().temporaries <= divided->layer_memory().temporaries);
        CHECK(divided->used().activations <= divided->layer_memory().activations);
        CHECK((divided->plan().bytes(term::logits) > 0) == (mesh.rank(axis::pp) == shape.pp - 1));
    }
}
