// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/frame.hpp"

#include "coeus/layers/embedding.hpp"
#include "coeus/layers/linear.hpp"
#include "coeus/layers/norm.hpp"
#include "support/catch.hpp"
#include "support/gradcheck.hpp"

#include <algorithm>
#include <limits>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("a frame is a stack of tensors in an arena") {
    Frame frame(256, 2);
    const int a = 0, b = 0;
    const Tensor x = frame.keep(Dtype::f32, {2, 3}), y = frame.keep(Dtype::f64, {5});
    frame.push(&a, x);
    frame.push(&b, y);
    CHECK(frame.peak_bytes() == 128);
    CHECK(frame.peak_entries() == 2);
    CHECK(frame.pop(&b).data == y.data);
    CHECK(frame.pop(&a).shape == x.shape);
    CHECK_THROWS_WITH(frame.pop(&a), Catch::Contains("a backward pops more than its forward pushed"));
    CHECK(frame.mark().entries == 0);
    CHECK(frame.mark().bytes == 128);  // only a rewind frees memory
    frame.rewind({0, 0});
    CHECK(frame.mark().bytes == 0);
    CHECK(frame.peak_entries() == 2);
    CHECK_THROWS_WITH(frame.keep(Dtype::u8, {257}),
                      Catch::Contains("arena 'activations' of 256 bytes is too small"));
}

TEST_CASE("a frame rewinds to a mark, and drops entries that were pushed after it") {
    Frame frame(256, 4);
    frame.push(nullptr, frame.keep(Dtype::u8, {64}));
    const Frame::Mark mark = frame.mark();
    frame.push(nullptr, frame.keep(Dtype::u8, {64}));
    frame.push(nullptr, frame.keep(Dtype::u8, {64}));
    frame.rewind(mark);
    CHECK(frame.mark().entries == 1);
    CHECK(frame.mark().bytes == 64);
    frame.pop(nullptr);
    frame.rewind(mark);  // popped entries do not come back
    CHECK(frame.mark().entries == 0);
}

#ifdef COEUS_DEBUG
TEST_CASE("debug builds detect a layer that pops another layer's entry") {
    Frame frame(64, 1);
    const int a = 0, b = 0;
    frame.push(&a, frame.keep(Dtype::u8, {64}));
    CHECK_THROWS_WITH(frame.pop(&b), Catch::Contains("a backward pops what another layer's forward pushed"));
}
#endif

TEST_CASE("flows with different numbers of tensors are not cast, and a flow has a limit") {
    Exec exec;
    Frame frame(1024, 4);
    Arena temp;
    StepScalars scalars;
    Ctx c{exec, cpu_kernels(), frame, temp, Batch{}, scalars};
    const Tensor x = frame.keep(Dtype::f32, {2}), y = frame.keep(Dtype::f64, {2});
    set_element(x, 0, 3);
    set_element(x, 1, 4);
    cast_flow(c, y, x);
    CHECK(values(y) == std::vector<double>{3, 4});
    CHECK_THROWS_WITH(cast_flow(c, Flow({y, y}), x),
                      Catch::Contains("flows have different numbers of tensors"));
    CHECK_THROWS_WITH(Flow({x, x, x, x, x}), Catch::Contains("more flows between blocks than Flow::most"));
}

TEST_CASE("the first product of a forgotten gradient replaces what is in memory, and later ones are added") {
    constexpr int64_t tokens = 6, width = 4;
    Parameters parameters({Dtype::f64, Dtype::f64});
    const auto param = [&](const char* name, int64_t rows) {
        return Param{.name = name, .shape = {rows, width}, .init = Init::ones(), .sums_products = true};
    };
    const Storage& storage = parameters.add({param("a", 2), param("b", 3)});
    parameters.allocate(true);
    Exec exec;
    Frame frame(4096, 4);
    Arena temp;
    StepScalars scalars;
    Ctx c{exec, cpu_kernels(), frame, temp, Batch{}, scalars};
    const Tensor x = frame.keep(Dtype::f64, {tokens, width}), dy = frame.keep(Dtype::f64, {tokens, 5});
    for (int64_t i = 0; i < x.count(); ++i) set_element(x, i, double(i + 1));
    for (int64_t i = 0; i < dy.count(); ++i) set_element(dy, i, double(i % 7) - 2);
    const auto fill = [&](double value) {
        for (int64_t i = 0; i < storage.g.count(); ++i) set_element(storage.g, i, value);
    };
    const auto add = [&](int64_t first_row, int64_t rows) {
        add_gradient(c, {.parts =
                             [&] {
                                 WeightGradient::Parts parts;
                                 parts.add({&storage, dy.slice_cols(first_row, rows), first_row});
                                 return parts;
                             }(),
                         .x = x});
    };
    fill(0);
    add(0, 5);
    const std::vector<double> once = values(storage.g);
    add(0, 5);
    const std::vector<double> twice = values(storage.g);
    CHECK(twice != once);

    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto forget = [&] {
        fill(nan);
        storage.forget_gradient();
    };
    forget();
    add(0, 5);
    CHECK(values(storage.g) == once);
    add(0, 5);
    CHECK(values(storage.g) == twice);
    // parameter by parameter
    forget();
    add(2, 3);
    add(0, 2);
    add(2, 3);
    add(0, 2);
    CHECK(values(storage.g) == twice);
    // rows without a product
    forget();
    add(2, 3);
    storage.zero_forgotten(exec, c.k);
    std::vector<double> some = once;
    std::fill_n(some.begin(), 2 * width, 0);
    CHECK(values(storage.g) == some);
    storage.zero_forgotten(exec, c.k);
    CHECK(values(storage.g) == some);
    add(0, 2);
    CHECK(values(storage.g) == once);

    forget();
    add(2, 3);
    CHECK_THROWS_WITH(add(0, 5), Catch::Contains("rows of which only some count as zero"));
    forget();
    CHECK_THROWS_WITH(add_gradient(c, {.parts = {&storage, dy}, .x = x.slice_cols(0, 2)}),
                      Catch::Contains("only a product of all columns can replace a gradient"));
}

TEST_CASE("a frozen parameter gets no gradient, but its input does") {
    constexpr int64_t tokens = 6, width = 4;
    TestBatch batch(2, 3, 5);
    const Batch view = batch.view();
    for (const bool trainable : {true, false}) {
        CAPTURE(trainable);
        Parameters parameters({Dtype::f64, Dtype::f64});
        const auto param = [&](const std::string& name, const Shape& shape) {
            return Param{.name = name, .shape = shape, .init = Init::normal(1), .trainable = trainable};
        };
        const Storage& table = parameters.add(param("table", {5, width}));
        const Storage& rms = parameters.add(param("rms", {width}));
        const Storage& layer = parameters.add(param("layer", {width}));
        const Storage& w = parameters.add(param("w", {3, width}));
        parameters.allocate(true);
        parameters.initialise(1, 1);
        const Embedding embedding(table);
        const RmsNorm rms_norm(rms, 1e-5);
        const LayerNorm layer_norm(&layer, 1e-5);
        const ColLinear linear(w);

        Exec exec;
        exec.workspace = Arena(4096, "workspace");
        Frame frame(4096, 16);
        Arena temp(4096, "temporaries");
        StepScalars scalars;
        Ctx c{exec, cpu_kernels(), frame, temp, view, scalars};
        const Tensor y =
            linear.forward(c, layer_norm.forward(c, rms_norm.forward(c, embedding.forward(c, {}).hidden())));
        const OwnedTensor dy(Dtype::f64, {tokens, 3});
        for (int64_t i = 0; i < dy.view.count(); ++i) set_element(dy, i, double(i % 5) - 1);
        CHECK(y.shape == Shape{tokens, 3});
        const Tensor dx = rms_norm.backward(c, layer_norm.backward(c, linear.backward(c, dy), {}), {});
        embedding.backward(c, dx);
        CHECK(frame.mark().entries == 0);
        CHECK(values(dx) != std::vector<double>(size_t(tokens * width), 0));
        for (const Storage& storage : parameters.storages()) {
            INFO(storage.params()[0].name);
            CHECK(bool(storage.g) == trainable);
            if (trainable) CHECK(values(storage.g) != std::vector<double>(size_t(storage.g.count()), 0));
        }
    }
}

TEST_CASE("deferred weight gradients are computed later, with the same bits") {
    constexpr int64_t tokens = 6, width = 4;
    TestBatch batch(2, 3, 5);
    const Batch view = batch.view();
    std::vector<double> at_once;
    for (const bool owing : {false, true}) {
        Parameters parameters({Dtype::f64, Dtype::f64});
        parameters.begin_unit();
        const Storage& in = parameters.add(Param{.name = "in", .shape = {3, width}, .init = Init::normal(1)});
        parameters.begin_unit();
        const Storage& out =
            parameters.add(Param{.name = "out", .shape = {width, 3}, .init = Init::normal(1)});
        CHECK(in.unit() == 0);
        CHECK(out.unit() == 1);
        parameters.allocate(true);
        parameters.initialise(1, 1);
        const ColLinear first(in);
        const RowLinear second(out);

        Exec exec;
        exec.workspace = Arena(4096, "workspace");
        Frame frame(4096, 16, 2);
        Arena temp(4096, "temporaries");
        StepScalars scalars;
        Ctx c{exec, cpu_kernels(), frame, temp, view, scalars};
        const OwnedTensor x(Dtype::f64, {tokens, width}), dy(Dtype::f64, {tokens, width});
        for (int64_t i = 0; i < tokens * width; ++i) {
            set_element(x, i, double(i % 7) - 3);
            set_element(dy, i, double(i % 5) - 1);
        }
        second.forward(c, first.forward(c, x), {});
        const auto backward = [&] {
            const Tensor dhidden = second.backward(c, dy);
            // a residual stream reuses the memory of dy
            cpu_kernels().zero(exec, dy);
            first.backward(c, dhidden);
        };
        if (!owing) {
            backward();
            CHECK(frame.owed().empty());
            at_once = values(parameters.gradients());
            continue;
        }
        {
            const Frame::Owing scope(frame);
            backward();
        }
        CHECK(frame.owed().size() == 2);
        CHECK(frame.peak_owed() == 2);
        CHECK(values(parameters.gradients()) == std::vector<double>(at_once.size(), 0));
        frame.pay(c, 1);
        CHECK(frame.owed().size() == 1);
        frame.pay(c, 0);
        CHECK(frame.owed().empty());
        CHECK(values(parameters.gradients()) == at_once);
    }
}
