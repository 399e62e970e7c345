// SPDX-License-Identifier: Apache-2.0
// What kernels find out about the tensors that they write, for the quantization that follows, on ranks that
// divide these tensors.
#include "support/written_operands.hpp"

#include "support/catch.hpp"
#include "support/mesh_factors.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

WrittenOperands seen_in_a_step(const MeshCase& c, const Mesh& mesh) {
    MeshRun run(c, mesh);
    WrittenOperands seen;
    const Observation observation = run.engine.observe(seen);
    TestBatch batch = batch_of_step(c, 1);
    CHECK(run.step(1, batch));
    run.evaluate(batch);
    return seen;
}

// Replaces each number by the largest of all ranks.
void take_largest(std::vector<int32_t>& numbers, const Communicator& world) {
    REQUIRE(world.all_reduce(int64_t(numbers.size()), Reduce::max) == int64_t(numbers.size()));
    REQUIRE(world.all_reduce(-int64_t(numbers.size()), Reduce::max) == -int64_t(numbers.size()));
    for (int32_t& number : numbers) number = int32_t(world.all_reduce(int64_t(number), Reduce::max));
}

}  // namespace

namespace {

// Gradients and weights after two steps.
std::pair<std::map<std::string, std::vector<double>>, std::map<std::string, std::vector<double>>>
results_of_steps(const MeshCase& c, const Mesh& mesh) {
    MeshRun run(c, mesh);
    for (const int64_t step : {1, 2}) {
        TestBatch batch = batch_of_step(c, uint64_t(step));
        CHECK(run.step(step, batch));
    }
    CHECK(use_differs_from_plan(c, run.engine).empty());
    return {run.whole(&Storage::gradient), run.whole(&Storage::master)};
}

}  // namespace

TEST_CASE(
    "kept operands: two ranks that divide tensors, layers or batches have the bits of steps without them") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    int number = 0;
    for (const MeshShape& shape : {MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.dp_shard = 2},
                                   MeshShape{.dp_replicate = 2}, MeshShape{.cp = 2}})
        for (const int recipe : {1, 3, 4}) {
            if (recipe == 4 && shape.tp == 1) continue;
            MeshCase c = float32_case_of(shape, recipe);
            c.local_batches = 1 + number % 3;
            c.recompute = {.mode = RecomputeOptions::Mode(number++ % 3)};
            INFO(c.name());
            const Mesh mesh(world.split(0, "world"), c.mesh);
            c.keeps_operands = false;
            const auto plain = results_of_steps(c, mesh);
            c.keeps_operands = true;
            CHECK(results_of_steps(c, mesh) == plain);
        }
}

// The first of these recipes has one scale for a tensor, the second one for a row.
TEST_CASE("quantized operands: kernels find scales of every kind of model on two ranks that divide tensors") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    constexpr int tensorwise = 1, rowwise = 3;
    int number = 0;
    for (const MeshShape& shape : {MeshShape{.cp = 2}, MeshShape{.tp = 2}})
        for (const int recipe : {tensorwise, rowwise})
            for (int kind = 0; kind < attention_kinds; ++kind) {
                ++number;
                constexpr Dtype computes[] = {Dtype::f64, Dtype::f32, Dtype::bf16};
                const Dtype compute = computes[number % 3];
                MeshCase c = {.mesh = shape,
                              .model = config_of_16s(kind, (kind + number / 2) % expert_kinds),
                              .types = {compute == Dtype::f64 ? Dtype::f64 : Dtype::f32, compute}};
                c.seq_len = 16;
                c.recompute = {.mode = RecomputeOptions::Mode(number / 2 % 3)};
                c.exchanges.context.exchange = ContextExchange(number % 2);
                set_recipe(c, recipe);
                INFO(c.name());
                const Mesh mesh(world.split(0, "world"), c.mesh);
                WrittenOperands seen = seen_in_a_step(c, mesh);
                take_largest(seen.own, world);
                CHECK(seen.given == seen.own);
                CHECK(!seen.given.empty() == (recipe == tensorwise));
                CHECK((seen.rounded > 0) == (recipe == rowwise && has_rounded_inputs(c.model)));
                CHECK(seen.wrongly_rounded == 0);
            }
}
