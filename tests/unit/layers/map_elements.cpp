// SPDX-License-Identifier: Apache-2.0
// Kernels that a layer defines itself, and the layer of examples/custom_model, which has two of them.
#include "coeus/layers/map_elements.hpp"

#include "../../../examples/custom_model/squared_relu.hpp"
#include "support/catch.hpp"
#include "support/gradcheck.hpp"

#include <memory>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

struct Calls : KernelObserver {
    void begin(const char* kernel, double flops, double bytes) override {
        calls.push_back(fmt::format("{} {} {}", kernel, flops, bytes));
    }
    void operands(std::span<const Tensor> tensors) override { operands_seen += tensors.size(); }
    void end() override { ++ends; }
    std::vector<std::string> calls;
    size_t operands_seen = 0, ends = 0;
};

// The objects to which a Ctx refers.
struct Surroundings {
    Exec exec;
    Frame frame;
    Arena temp;
    Batch batch;
    StepScalars scalars;

    Ctx context(const Kernels& kernels = cpu_kernels()) {
        return {.exec = exec, .k = kernels, .frame = frame, .temp = temp, .batch = batch, .scalars = scalars};
    }
};

}  // namespace

TEST_CASE("map_elements: computes every element once, in each type, on several threads") {
    for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16})
        for (const int64_t count : {1, 40000}) {
            CAPTURE(name_of(type), count);
            Surroundings place;
            place.exec.threads = 2;
            place.temp = Arena(3 * count * 8 + 256, "temporaries");
            Ctx c = place.context();
            const Tensor a = c.temp.alloc(type, {count}), b = c.temp.alloc(type, {count});
            for (int64_t i = 0; i < count; ++i) {
                set_element(a, i, double(i % 100));
                set_element(b, i, 1);
            }
            map_elements(
                c, "twice_and_one", b, [](auto x, auto y) { return 2 * x + y; }, a, b);
            bool right = true;
            for (int64_t i = 0; i < count; ++i) right &= element(b, i) == double(2 * (i % 100) + 1);
            CHECK(right);
        }
}

TEST_CASE("map_elements: observers see one kernel, a planning run computes nothing, a GPU is refused") {
    Surroundings place;
    Calls seen;
    const Observation observation = place.exec.observers.add(seen);
    const auto run = [&](const Kernels& kernels) {
        Ctx c = place.context(kernels);
        const Tensor x = c.temp.alloc(Dtype::f32, {5, 2}), y = c.temp.alloc(Dtype::f32, {5, 2});
        map_elements(
            c, "square", y, [](auto v) { return v * v; }, x);
    };
    run(dry_kernels());  // its tensors have addresses that must not be read
    CHECK(seen.calls == std::vector<std::string>{"square 20 80"});
    CHECK(seen.operands_seen == 2);
    CHECK(seen.ends == 1);
    CHECK_THROWS_WITH(run(dry_cuda_kernels()),
                      "the kernel square computes only on CPUs; set device = \"cpu\"");
    place.temp = Arena(1024, "temporaries");
    Ctx c = place.context();
    const Tensor x = c.temp.alloc(Dtype::f32, {5, 2});
    CHECK_THROWS_AS(map_elements(
                        c, "square", x, [](auto v) { return v; }, x.slice_rows(0, 2)),
                    LogicError);
    CHECK_THROWS_AS(map_elements(
                        c, "square", x.slice_cols(0, 1), [](auto v) { return v; }, x.slice_cols(0, 1)),
                    LogicError);
    CHECK_THROWS_AS(map_elements(
                        c, "square", c.temp.alloc(Dtype::i32, {2}), [](auto v) { return v; }, x),
                    LogicError);
}

TEST_CASE("squared ReLU of examples/custom_model: gradients") {
    for (const int64_t hidden : {1, 9})
        for (const int64_t tokens : {1, 11}) {
            CAPTURE(hidden, tokens);
            const auto build = [&](Parameters& parameters) {
                const auto weight = [](const char* name, int64_t rows, int64_t cols) {
                    return Param{.name = name, .shape = {rows, cols}, .init = Init::normal(0.5)};
                };
                const Storage& w1 = parameters.add(weight("w1", hidden, 5));
                auto layer = std::make_shared<primer::SquaredReluLayer>(
                    w1, parameters.add(weight("w2", 5, hidden)), LinearInput());
                return CheckedLayer{[=](Ctx& c, Tensor x) { return layer->forward(c, x, x); },
                                    [=](Ctx& c, Tensor dy) {
                                        const Tensor dx = layer->backward(c, dy);
                                        c.k.add(c.exec, dx, dy);
                                        return dx;
                                    }};
            };
            CHECK(gradcheck(build, TestBatch(1, tokens, 1), {.x = {tokens, 5}}) == "");
        }
}
