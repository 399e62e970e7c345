// SPDX-License-Identifier: Apache-2.0
// What a rank of a large mesh will hold, planned by one process: each degree divides what it should.
#include "coeus/pretrained/model_source.hpp"
#include "coeus/train/setup.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

MemoryPlan planned(int ranks, const Words& arguments) {
    Words all = {std::string(COEUS_SOURCE_DIR) + "/inputs/base/llama3_405b.toml",
                 "--dry_run",
                 "--training.seq_len=8192",
                 "--activation_checkpoint.mode=none",
                 "--parallelism.tensor_parallel_degree=1",
                 "--parallelism.context_parallel_degree=1",
                 "--parallelism.pipeline_parallel_degree=1",
                 "--parallelism.data_parallel_shard_degree=-1"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Config config = parse_command_line(all).config;
    const DecoderConfig model = model_from_deck(config);
    return Engine(model, engine_options(config, model, mesh_shape(config, ranks), 0, 1)).plan();
}

// `part` is `whole` / divisor, within 1 % of padding and of what is not divided.
bool divided(int64_t part, int64_t whole, int64_t divisor) {
    return relatively_close(double(part * divisor), double(whole), 0.01);
}

}  // namespace

TEST_CASE("plan of 405B: twice the shards, half the state") {
    const MemoryPlan few = planned(64, {}), many = planned(512, {});
    CHECK(divided(many.state.total(), few.state.total(), 8));
    CHECK(many.activations == few.activations);
    CHECK(many.gathered.weights >= few.gathered.weights);  // a whole unit, padded to the ranks
    CHECK(many.total() < few.total());
}

TEST_CASE("plan of 405B on 512 ranks: tensor parallel divides layers and tokens") {
    MemoryPlan before = planned(512, {});
    for (const char* degree : {"2", "4", "8"}) {
        CAPTURE(degree);
        const MemoryPlan now = planned(512, {std::string("--parallelism.tensor_parallel_degree=") + degree});
        CHECK(divided(now.activations, before.activations, 2));
        CHECK(divided(now.gathered.weights, before.gathered.weights, 2));
        CHECK(divided(now.gathered.gradients, before.gathered.gradients, 2));
        CHECK(divided(now.state.total(), before.state.total(), 1));
        CHECK(now.total() < before.total());
        before = now;
    }
}

TEST_CASE("plan of 405B on 512 ranks: context parallel divides tokens") {
    MemoryPlan before = planned(512, {});
    for (const char* degree : {"2", "4", "8"}) {
        CAPTURE(degree);
        const MemoryPlan now = planned(512, {std::string("--parallelism.context_parallel_degree=") + degree});
        CHECK(divided(now.activations, before.activations, 2));
        CHECK(now.gathered.weights == before.gathered.weights);
        CHECK(divided(now.state.total(), before.state.total(), 1));
        CHECK(now.total() < before.total());
        before = now;
    }
}

TEST_CASE("plan of 405B on 512 ranks: a pipeline divides layers") {
    const auto pipeline = [](int degree) {
        return planned(512, {"--training.local_batch_size=8", "--parallelism.pipeline_parallel_schedule=1F1B",
                             fmt::format("--parallelism.pipeline_parallel_degree={}", degree)});
    };
    MemoryPlan before = pipeline(2);
    for (const int degree : {4, 8}) {
        CAPTURE(degree);
        const MemoryPlan now = pipeline(degree);
        // of 126 layers rank 0 has 63, 32, 16
        CHECK(relatively_close(double(now.gathered.weights), double(before.gathered.weights) / 2, 0.06));
        // as many more frames are alive as each is smaller
        CHECK(relatively_close(double(now.activations), double(before.activations), 0.06));
        CHECK(now.total() < before.total());
        before = now;
    }
}

TEST_CASE("plan of 405B on 512 ranks: the less a block keeps, the smaller the peak") {
    const auto mode = [](const char* name) {
        return planned(512, {std::string("--activation_checkpoint.mode=") + name});
    };
    const MemoryPlan none = mode("none"), selective = mode("selective"), full = mode("full");
    CHECK(selective.activations < none.activations);
    CHECK(full.activations < selective.activations / 4);
    CHECK(full.state.total() == none.state.total());
}

TEST_CASE("the plan of GPUs has an estimate of what NCCL takes for each communicator") {
    const auto on_gpus = [](const Words& more) {
        Words all = {"--device=cuda", "--training.seq_len=1024"};
        all.insert(all.end(), more.begin(), more.end());
        return planned(8, all);
    };
    const int64_t of_one = 16 * ((4 << 20) + (512 << 10) + 4915200);
    const MemoryPlan shards = on_gpus({});
    CHECK(shards.nccl == 4 * of_one);  // weights, gradients, loss, norm
    CHECK_THAT(shards.text(0), Catch::Contains("buffers of NCCL (estimate)"));
    const MemoryPlan two = on_gpus({"--parallelism.tensor_parallel_degree=2"});
    CHECK(two.nccl == 5 * of_one);
    // by the host
    MemoryPlan staged = on_gpus({"--comm.transport=staged"});
    CHECK(staged.nccl == 0);
    CHECK(staged.total() == shards.total() - shards.nccl);
    CHECK(planned(8, {"--device=cpu"}).nccl == 0);
    CHECK(planned(1, {"--device=cuda", "--training.seq_len=1024"}).nccl == 0);
}
