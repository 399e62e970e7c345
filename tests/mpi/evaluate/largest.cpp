// SPDX-License-Identifier: Apache-2.0
// Ranks that divide the vocabulary agree on the most likely id of each token.
#include "coeus/engine/engine.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("evaluate: of all labels of a token, one is the largest, on each rank of a mesh") {
    const int ranks = Communicator::world("world").size();
    DecoderConfig model = tiny_config();
    model.logits_scale = 0.6;
    const MeshShape shape = {.dp_shard = ranks / 2, .tp = 2};
    const Mesh mesh(Communicator::world("world"), shape);
    for (const bool split_loss : {true, false}) {
        CAPTURE(split_loss);
        Engine engine(model, {.trains = false,
                              .types = {Dtype::f64, Dtype::f64},
                              .validation = {.sequences = 2, .seq_len = 8},
                              .scores_tokens = true,
                              .mesh = shape,
                              .rank = mesh.world().rank(),
                              .exchanges = {.split_loss = split_loss}});
        engine.allocate(mesh);
        engine.model().parameters().initialise(engine.exec(), engine.kernels(), 5);
        engine.renew_weights();
        TestBatch batch(2, 8, model.vocab);
        std::vector<int> times(batch.labels.size());
        for (int32_t label = 0; label < model.vocab; ++label) {
            std::ranges::fill(batch.labels, label);
            TokenScores scores;
            engine.evaluate(batch.local_batch(0, 2), scores);
            for (size_t i = 0; i < times.size(); ++i) times[i] += scores.label_is_largest[i];
        }
        CHECK(times == std::vector<int>(times.size(), 1));
    }
}
