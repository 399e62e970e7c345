// SPDX-License-Identifier: Apache-2.0
// An engine on a GPU that only evaluates scores tokens as one on the host does, in the planned memory.
#include "coeus/engine/engine.hpp"
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

TokenScores scores_on(const Device& device, Dtype compute, TestBatch& batch) {
    Engine engine(
        tiny_config(),
        {.trains = false,
         .types = {compute, compute},
         .validation = {.sequences = batch.sequences, .seq_len = batch.seq_len, .masks_documents = true},
         .scores_tokens = true,
         .machine = {.backend = device.backend()}});
    engine.allocate(mesh_of_one(), device);
    engine.model().parameters().initialise(engine.exec(), engine.kernels(), 5);
    engine.renew_weights();
    TokenScores scores;
    engine.evaluate(batch.local_batch(0, 1));  // libraries allocate at their first product
    const size_t before = gpu_allocations();
    engine.evaluate(batch.local_batch(0, batch.sequences), scores);
    CHECK(gpu_allocations() == before);
    CHECK(engine.used().temporaries <= engine.layer_memory().temporaries);
    return scores;
}

}  // namespace

TEST_CASE("evaluation on a GPU gives the scores of tokens of a CPU") {
    TestBatch batch(2, 9, tiny_config().vocab);
    batch.ignore_every(4).split_documents(4, false);
    for (const Dtype compute : {Dtype::f32, Dtype::bf16}) {
        CAPTURE(name_of(compute));
        const TokenScores there = scores_on(the_gpu(), compute, batch),
                          here = scores_on(host_device(), compute, batch);
        REQUIRE(there.losses.size() == here.losses.size());
        for (size_t i = 0; i < here.losses.size(); ++i)
            CHECK(close(there.losses[i], here.losses[i], compute == Dtype::f32 ? 1e-5 : 3e-2));
        if (compute == Dtype::f32) CHECK(there.label_is_largest == here.label_is_largest);
    }
}
