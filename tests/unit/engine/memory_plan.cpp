// SPDX-License-Identifier: Apache-2.0
// The host memory in a plan for a GPU.
#include "coeus/deck/command_line.hpp"
#include "coeus/models/token_batches.hpp"
#include "coeus/plan/memory.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/run_options.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;

namespace {

Engine engine_on_gpu(const Words& more, int ranks) {
    Words words = {"--dry_run", "--device=cuda", "--model.flavor=debugmodel", "--training.seq_len=128",
                   "--training.mixed_precision_param=float32"};
    words.insert(words.end(), more.begin(), more.end());
    const Config config = parse_command_line(words).config;
    const DecoderConfig model = model_from_deck(config);
    return Engine(model, planned_options(config, model, mesh_shape(config, ranks), 0));
}

MemoryPlan plan_on_gpu(const Words& more, int ranks) {
    return engine_on_gpu(more, ranks).plan();
}

}  // namespace

TEST_CASE("memory plan: copies for checkpoints are on the GPU's host, divided over the replicas") {
    const Words saves = {"--checkpoint.enable", "--checkpoint.async_mode=async"};
    const MemoryPlan one = plan_on_gpu(saves, 1);
    const int64_t state = one.bytes(term::weights) + one.bytes(term::moments);
    CHECK(state > 0);
    CHECK(one.bytes(term::copies, MemoryPlace::host) == state);
    CHECK(one.bytes(term::copies) == 0);
    Words replicas = saves;
    replicas.emplace_back("--parallelism.data_parallel_replicate_degree=2");
    CHECK(plan_on_gpu(replicas, 2).bytes(term::copies, MemoryPlace::host) == state / 2);
    CHECK(plan_on_gpu({"--checkpoint.enable"}, 1).bytes(term::copies, MemoryPlace::host) == 0);
}

TEST_CASE("memory plan: token ids of a step and pieces of reductions are on the GPU's host") {
    const MemoryPlan one =
                         plan_on_gpu({"--training.local_batch_size=2", "--training.global_batch_size=6"}, 1),
                     two =
                         plan_on_gpu({"--training.local_batch_size=2", "--training.global_batch_size=12"}, 2);
    const int64_t ids = TokenBatches().bytes({{2, 128}, 3}, {}, 1, Backend::cuda).host;
    CHECK(ids > 0);
    const char* ids_and_reductions = "token ids and reductions";
    CHECK(one.bytes(ids_and_reductions, MemoryPlace::host) == ids);
    // the ranks of the data axes sum gradients, which needs pieces from each peer
    CHECK(two.bytes(ids_and_reductions, MemoryPlace::host) > ids);
    CHECK(one.bytes(ids_and_reductions) == 0);
}

TEST_CASE("memory plan: a planned run on GPUs has blocks of experts' rows if the run has them") {
    const auto uses_blocks = [](Words more) {
        more.insert(more.end(), {"--model.name=qwen3", "--model.flavor=debugmodel_moe",
                                 "--parallelism.expert_parallel_degree=2"});
        return engine_on_gpu(more, 2).uses_expert_blocks();
    };
    CHECK(uses_blocks({}));
    CHECK_FALSE(uses_blocks({"--training.disable_cuda_graphs"}));
    CHECK_FALSE(uses_blocks({"--comm.transport=staged"}));
}
