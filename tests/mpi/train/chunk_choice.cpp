// SPDX-License-Identifier: Apache-2.0
// All ranks have chunks of logits of one size, whichever of them has the least memory.
#include "coeus/session/chunk_choice.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"

using namespace coeus;
using namespace coeus::test;

TEST_CASE("chunks of logits: one rank with little memory decides for all") {
    const Communicator world = Communicator::world("world");
    DecoderConfig model = tiny_config();
    model.vocab = 300000;
    EngineOptions options;
    options.types = {.master = Dtype::bf16, .compute = Dtype::bf16};
    options.training = {.sequences = 1, .seq_len = 4096};
    options.mesh = {.dp_shard = world.size()};
    options.rank = world.rank();
    options.machine.backend = Backend::cuda;
    EngineOptions largest = options;
    largest.chunk_bytes = gpu_chunk_bytes.front();
    const int64_t needed = world.all_reduce(Engine(model, largest).plan().total(), Reduce::max);
    const auto chosen = [&](int64_t limit) {
        return with_largest_chunks(model, options, limit, world, std::nullopt).chunk_bytes.value();
    };
    CHECK(chosen(needed) == gpu_chunk_bytes.front());
    CHECK(chosen(0) == gpu_chunk_bytes.back());
    for (int poor = 0; poor < world.size(); ++poor)
        CHECK(chosen(world.rank() == poor ? needed / 2 : 2 * needed) == gpu_chunk_bytes.back());
}
