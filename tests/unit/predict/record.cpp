// SPDX-License-Identifier: Apache-2.0
// Recordings of steps: every kernel, and every collective where the engine makes it.
#include "coeus/predict/record.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <algorithm>
#include <map>

using namespace coeus;
using namespace coeus::test;

namespace {

EngineOptions options_of(const MeshShape& mesh, int64_t local_batches) {
    EngineOptions options;
    options.types = {.master = Dtype::bf16, .compute = Dtype::bf16};
    options.training = {.sequences = 2, .seq_len = 32};
    options.accumulation = local_batches;
    options.mesh = mesh;
    options.backend = Backend::cuda;
    options.architecture = 90;
    return options;
}

int64_t count(const Recording& r, Submitted::Kind kind) {
    return std::ranges::count(r.submitted, kind, &Submitted::kind);
}

int64_t calls_of(const Recording& r, const std::string& kernel) {
    return std::ranges::count_if(r.submitted, [&](const Submitted& s) {
        return s.kind == Submitted::Kind::kernel && r.calls[s.index].kernel == kernel;
    });
}

double bytes_of(const Recording& r, Submitted::Kind kind, const std::string& operation) {
    double bytes = 0;
    for (const Submitted& s : r.submitted)
        if (s.kind == kind && r.collectives[s.index].operation == operation)
            bytes += r.collectives[s.index].bytes;
    return bytes;
}

using enum Submitted::Kind;

}  // namespace

TEST_CASE("a recording has the kernels of every local batch and of the update, on any rank without memory") {
    const Recording one = record_step(tiny_config(3), options_of({}, 1)),
                    three = record_step(tiny_config(3), options_of({}, 3));
    CHECK(calls_of(one, "attention") == 3);
    CHECK(calls_of(one, "attention_backward") == 3);
    CHECK(calls_of(three, "attention_backward") == 9);
    CHECK(calls_of(one, "adam") == calls_of(three, "adam"));
    CHECK(calls_of(one, "adam") > 3);
    CHECK(one.communications() == 0);
    // 3 x (qkv, output, gate and up, down) and the head, forward and both gradients
    CHECK(calls_of(one, "gemm") >= 3 * (3 * 4 + 1));
    const auto is_weight_gradient = [](const Call& call) { return call.variant == "tn"; };
    CHECK(std::ranges::any_of(one.calls, is_weight_gradient));
    const Call& call = *std::ranges::find(one.calls, "attention", &Call::kernel);
    CHECK(call.key() == "attention bfloat16 own 2x32x6");
    CHECK(call.type == Dtype::bf16);
    // norm backward and sum of squares have a second kernel, and finish_norm has one
    CHECK(one.launches() > count(one, kernel));
}

TEST_CASE("a recording has the gathers and sums of FSDP, their bytes, and the waits for them") {
    const MeshShape mesh = {.dp_shard = 4};
    const Recording r = record_step(tiny_config(3), options_of(mesh, 2));
    const double gathered = bytes_of(r, gather, "all_gather"),
                 reduced = bytes_of(r, reduce, "reduce_scatter");
    CHECK(gathered > 0);
    // gradients are float32 and are summed once in each local batch, weights are gathered once or twice
    const double of_weights = reduced / 2 / 2;
    CHECK(gathered >= 2 * of_weights);
    CHECK(gathered <= 4 * of_weights);
    CHECK(count(r, wait_for_gathers) >= 2 * 2 * 4);
    CHECK(count(r, wait_for_room) > 0);
    CHECK(count(r, wait_for_gradients) == 1);
    // the loss, and the norm
    CHECK(bytes_of(r, exchange, "all_reduce") > 0);
    for (const Submitted& s : r.submitted)
        if (s.kind == gather || s.kind == reduce) CHECK(mesh.size(r.collectives[s.index].axes) == 4);
}

TEST_CASE("a recording has the exchanges of tensor parallelism and the sums of replicas") {
    const Recording tp = record_step(tiny_config(3), options_of({.tp = 2}, 1));
    CHECK(bytes_of(tp, exchange, "all_gather") > 0);
    CHECK(bytes_of(tp, exchange, "reduce_scatter") > 0);
    CHECK(count(tp, gather) == 0);
    const Recording replicas = record_step(tiny_config(3), options_of({.dp_replicate = 2}, 2));
    const double sums = bytes_of(replicas, reduce, "all_reduce");
    // once a step, in float32; rows are padded
    CHECK(sums == Approx(4.0 * double(tiny_config(3).parameters())).epsilon(0.01));
}

TEST_CASE("offloaded state is not recorded") {
    EngineOptions options = options_of({}, 1);
    options.types.offload = true;
    REQUIRE_THROWS_WITH(record_step(tiny_config(3), options), Catch::Contains("offloaded state"));
}
