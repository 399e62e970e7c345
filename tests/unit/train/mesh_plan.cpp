// SPDX-License-Identifier: Apache-2.0
// The memory plan for a rank of a large mesh, made by one process: each degree divides the terms that it
// should.
#include "coeus/deck/command_line.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/run_options.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

MemoryPlan planned(int ranks, const Words& arguments) {
    Words all = {paths::source() + "/inputs/base/llama3_405b.toml",
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
    return Engine(model, planned_options(config, model, mesh_shape(config, ranks), 0)).plan();
}

int64_t state_of(const MemoryPlan& plan) {
    return plan.bytes(term::weights) + plan.bytes(term::compute_weights) + plan.bytes(term::gradients) +
           plan.bytes(term::moments);
}

// Whether `part` is `whole` / divisor, within 1 % for padding and undivided parts.
bool divided(int64_t part, int64_t whole, int64_t divisor) {
    return relatively_close(double(part * divisor), double(whole), 0.01);
}

}  // namespace

TEST_CASE("plan of 405B: more shards divide the state") {
    const MemoryPlan few = planned(64, {}), many = planned(512, {});
    CHECK(divided(state_of(many), state_of(few), 8));
    CHECK(many.bytes(term::activations) == few.bytes(term::activations));
    CHECK(many.bytes(term::gathered_weights) >=
          few.bytes(term::gathered_weights));  // a whole unit, padded to the ranks
    CHECK(many.total() < few.total());
}

TEST_CASE("plan of 405B on 512 ranks: tensor parallelism divides layers and tokens") {
    MemoryPlan before = planned(512, {});
    for (const char* degree : {"2", "4", "8"}) {
        CAPTURE(degree);
        const MemoryPlan now = planned(512, {std::string("--parallelism.tensor_parallel_degree=") + degree});
        CHECK(divided(now.bytes(term::activations), before.bytes(term::activations), 2));
        CHECK(divided(now.bytes(term::gathered_weights), before.bytes(term::gathered_weights), 2));
        CHECK(divided(now.bytes(term::unreduced_gradients), before.bytes(term::unreduced_gradients), 2));
        CHECK(divided(state_of(now), state_of(before), 1));
        CHECK(now.total() < before.total());
        before = now;
    }
}

TEST_CASE("plan of 405B on 512 ranks: context parallelism divides tokens") {
    MemoryPlan before = planned(512, {});
    for (const char* degree : {"2", "4", "8"}) {
        CAPTURE(degree);
        const MemoryPlan now = planned(512, {std::string("--parallelism.context_parallel_degree=") + degree});
        CHECK(divided(now.bytes(term::activations), before.bytes(term::activations), 2));
        CHECK(now.bytes(term::gathered_weights) == before.bytes(term::gathered_weights));
        CHECK(divided(state_of(now), state_of(before), 1));
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
        CHECK(relatively_close(double(now.bytes(term::gathered_weights)),
                               double(before.bytes(term::gathered_weights)) / 2, 0.06));
        // frames are smaller, but correspondingly more of them are alive
        CHECK(relatively_close(double(now.bytes(term::activations)), double(before.bytes(term::activations)),
                               0.06));
        CHECK(now.total() < before.total());
        before = now;
    }
}

TEST_CASE("plan of 405B on 512 ranks: the less a block keeps, the smaller the peak") {
    const auto mode = [](const char* name) {
        return planned(512, {std::string("--activation_checkpoint.mode=") + name});
    };
    const MemoryPlan none = mode("none"), selective = mode("selective"), full = mode("full");
    CHECK(selective.bytes(term::activations) < none.bytes(term::activations));
    CHECK(full.bytes(term::activations) < selective.bytes(term::activations) / 4);
    CHECK(state_of(full) == state_of(none));
}

TEST_CASE("the plan of GPUs estimates the memory of NCCL for each communicator") {
    const auto on_gpus = [](const Words& more) {
        Words all = {"--device=cuda", "--training.seq_len=1024"};
        all.insert(all.end(), more.begin(), more.end());
        return planned(8, all);
    };
    const MemoryPlan shards = on_gpus({});
    CHECK(shards.bytes(term::nccl) == nccl_bytes(4));  // weights, gradients, loss, norm
    CHECK(on_gpus({"--comm.deterministic=false"}).bytes(term::nccl) == nccl_bytes(4, true));
    CHECK_THAT(shards.text(0), Catch::Contains("NCCL buffers (estimate)"));
    CHECK(shards.bytes(term::spare) == int64_t(1) << 30);
    CHECK_THAT(shards.text(0), Catch::Contains("\n  kept free                       1.00 GiB\n"));
    const MemoryPlan two = on_gpus({"--parallelism.tensor_parallel_degree=2"});
    CHECK(two.bytes(term::nccl) == nccl_bytes(5));
    // through host memory
    MemoryPlan staged = on_gpus({"--comm.transport=staged"});
    CHECK(staged.bytes(term::nccl) == 0);
    CHECK(staged.bytes(term::spare) == 0);
    CHECK(staged.total() == shards.total() - shards.bytes(term::nccl) - shards.bytes(term::spare));
    CHECK(planned(8, {"--device=cpu"}).bytes(term::nccl) == 0);
    CHECK(planned(1, {"--device=cuda", "--training.seq_len=1024"}).bytes(term::nccl) == 0);
}
