// SPDX-License-Identifier: Apache-2.0
// In double: every kernel against plain loops over its definition, every backward against finite differences,
// and the in-place forms that the table allows against those with separate memory.
#include "naive.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("kernels in double match their definitions") {
    for (const KernelCase& c : test_cases()) {
        const Operands expected = run_case(c, naive_kernels(), Dtype::f64, Dtype::f64);
        const Operands result = run_case(c, cpu_kernels(), Dtype::f64, Dtype::f64);
        for (size_t i = 0; i < c.arguments.size(); ++i) {
            if (c.arguments[i].role == Role::input) continue;
            INFO(c.name << ", " << c.arguments[i].name);
            CHECK(normalised_error(values_of(result[i]), values_of(expected[i])) <= 1e-13);
        }
    }
}

namespace {

/// A forward and its backward. `dy` and `inputs` are arguments of the backward's case; each input is paired
/// with its gradient, for the loss sum(dy * y).
struct Pair {
    KernelCase backward;
    size_t dy;
    std::vector<std::pair<size_t, size_t>> inputs;   // input, its gradient
    std::function<Tensor(const Operands&)> forward;  // computes y from the inputs
};

double dot(const Tensor& a, const Tensor& b) {
    const std::vector<double> x = values_of(a), y = values_of(b);
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

/// The derivative of f by element i of x, from five points: the error is about h^4 plus rounding / h.
double derivative(const Tensor& x, int64_t i, const std::function<double()>& f) {
    const double h = 1e-3, middle = element(x, i);
    const auto value = [&](double offset) {
        set_element(x, i, middle + offset);
        return f();
    };
    const double slope = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h);
    set_element(x, i, middle);
    return slope;
}

void check_pair(const Pair& pair) {
    const Operands o = run_case(pair.backward, cpu_kernels(), Dtype::f64, Dtype::f64);
    for (const auto& [input, gradient] : pair.inputs) {
        double scale = 0;
        for (double g : values_of(o[gradient])) scale = worse_of(scale, std::fabs(g));
        REQUIRE(std::isfinite(scale));  // since it widens the bound
        const int64_t count = o[input].count(), stride = std::max<int64_t>(1, count / 23);
        for (int64_t i = 0; i < count; i += stride) {
            const double slope = derivative(o[input], i, [&] { return dot(o[pair.dy], pair.forward(o)); });
            INFO(pair.backward.name << ", gradient of " << pair.backward.arguments[input].name << "[" << i
                                    << "]");
            CHECK(close(element(o[gradient], i), slope, 1e-8 * std::fmax(1.0, scale)));
        }
    }
}

struct TestExec : Exec {
    TestExec() {
        threads = 2;
        workspace = Arena(int64_t(1) << 24, "test");
    }
};

}  // namespace

TEST_CASE("the backward of attention agrees with finite differences") {
    const AttentionShape full = {.batch = 2,
                                 .sequence = 51,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = 3,
                                 .scale = 0.6,
                                 .key_part = {20},
                                 .causal = false};
    for (const auto& [shape, documents] : {std::pair<AttentionShape, bool>{{1, 1, 1, 1, 1, 1.0}, false},
                                           {full, false},
                                           {{2, 5, 3, 1, 5, 0.4}, false},
                                           {{1, 53, 2, 2, 4, 0.5}, true},
                                           {{2, 50, 4, 2, 3, 0.6}, true},
                                           {{1, 100, 2, 1, 16, 0.25}, false}}) {
        const AttentionShape s = shape;
        const bool masked = documents;
        check_pair({attention_case(s, masked, true), 6, {{2, 7}, {3, 8}, {4, 9}}, [=](const Operands& o) {
                        TestExec exec;
                        cpu_kernels().attention(exec, o[0], o[1], o[2], o[3], o[4], masked ? o[5] : Tensor(),
                                                s);
                        return o[0];
                    }});
    }
}

TEST_CASE("the backward of the row kernels agrees with finite differences") {
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 2}, {3, 7}, {67, 33}}) {
        KernelCase rms = rms_norm_backward_case(rows, width, Plus::none, 1);
        KernelCase layer = layer_norm_backward_case(rows, width, true, Plus::none);
        rms.arguments[1].deviation = layer.arguments[1].deviation = 0;
        check_pair({rms, 2, {{4, 0}, {6, 1}}, [](const Operands& o) {
                        TestExec exec;
                        cpu_kernels().rms_norm(exec, o[7], o[5], {}, o[4], o[6], {1e-5, 1});
                        return o[7];
                    }});
        if (width > 1)
            check_pair({layer, 2, {{4, 0}, {7, 1}}, [](const Operands& o) {
                            TestExec exec;
                            cpu_kernels().layer_norm(exec, o[8], o[5], o[6], o[4], o[7], 1e-5);
                            return o[8];
                        }});
        for (const bool weighted : {true, false}) {
            KernelCase heads = head_norm_backward_case(rows, 3, width, weighted, Place::own, 1);
            heads.arguments[1].deviation = 0;
            std::vector<std::pair<size_t, size_t>> inputs = {{3, 0}};
            if (weighted) inputs.push_back({4, 1});
            const auto y = std::make_shared<OwnedTensor>(Dtype::f64, Shape{rows, 3 * width});
            check_pair(
                {heads, 2, inputs, [=, width = width](const Operands& o) {
                     TestExec exec;
                     cpu_kernels().head_norm(exec, *y, o[3], weighted ? o[4] : Tensor(), width, {1e-2, 1});
                     return Tensor(*y);
                 }});
        }
        const auto y = std::make_shared<OwnedTensor>(Dtype::f64, Shape{rows, width});
        for (const Activation activation : {Activation::silu, Activation::gelu_tanh})
            check_pair(
                {glu_backward_case(activation, rows, width, false), 1, {{2, 0}}, [=](const Operands& o) {
                     TestExec exec;
                     const Kernels& k = cpu_kernels();
                     (activation == Activation::silu ? k.swiglu : k.geglu)(exec, *y, o[2]);
                     return Tensor(*y);
                 }});
    }
}

TEST_CASE("the backward of modulation and of activations agrees with finite differences") {
    const Kernels& k = cpu_kernels();
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 2}, {3, 7}, {97, 5}}) {
        const SequenceRows sequences = {.first = 60, .length = 70};  // a sequence across blocks of the sums
        const auto y = std::make_shared<OwnedTensor>(Dtype::f64, Shape{rows, width});
        for (const bool gate : {false, true}) {  // or the modulation of a norm
            const double base = gate ? 0 : 1;
            const KernelCase c = modulate_backward_case(rows, width, sequences, !gate, Place::own, base);
            const size_t scale = 4, dscale = 1;
            check_pair({c, 2, {{3, 0}, {scale, dscale}}, [=](const Operands& o) {
                            TestExec exec;
                            k.modulate(exec, *y, {}, o[3], {}, o[scale], sequences, base);
                            return Tensor(*y);
                        }});
            if (gate) continue;
            // the shift is where the scale was, and other scales are 0: they do not matter to its gradient
            const auto zeros = std::make_shared<OwnedTensor>(Dtype::f64, c.arguments[scale].shape);
            check_pair({c, 2, {{scale, 5}}, [=](const Operands& o) {
                            TestExec exec;
                            k.zero(exec, *zeros);
                            k.modulate(exec, *y, {}, o[3], o[scale], *zeros, sequences, 1);
                            return Tensor(*y);
                        }});
        }
        for (const Activation kind : {Activation::silu, Activation::gelu_tanh})
            check_pair({activation_backward_case(kind, rows, width, Place::own),
                        1,
                        {{2, 0}},
                        [=](const Operands& o) {
                            TestExec exec;
                            k.activation(exec, *y, o[2], kind);
                            return Tensor(*y);
                        }});
    }
}

TEST_CASE("norms of rows whose columns are divided, with their gradients, are those of whole rows") {
    constexpr int64_t rows = 5, own = 6, width = 14;
    const NormForm form(1e-2, 1);
    const Operands whole = run_case(rms_norm_backward_case(rows, width, Plus::none, form.offset),
                                    cpu_kernels(), Dtype::f64, Dtype::f64);
    const Tensor dy = whole[2], x = whole[4], weight = whole[6];
    TestExec exec;
    const OwnedTensor y(Dtype::f64, {rows, width}), dx(Dtype::f64, {rows, width}), rstd(Dtype::f64, {rows}),
        dweight(Dtype::f64, {width}), in_parts(Dtype::f64, {rows, width}),
        dx_in_parts(Dtype::f64, {rows, width}), dweight_in_parts(Dtype::f64, {width}),
        sums(Dtype::f64, {2, rows}), of_part(Dtype::f64, {2, rows});
    const Kernels& k = cpu_kernels();
    for (const OwnedTensor* zeros : {&dweight, &dweight_in_parts, &sums}) k.zero(exec, *zeros);
    k.rms_norm(exec, y, rstd, {}, x, weight, form);
    k.rms_norm_backward(exec, dx, dweight, dy, {}, x, rstd, weight, form);

    const auto row_of = [](const Tensor& t, int64_t i) { return t.slice_rows(i, 1).reshape({rows}); };
    const auto each_part = [&](const auto& f) {
        for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, own}, {own, width - own}})
            f([first = first, count = count](const Tensor& t) {
                return t.shape.rank == 1 ? t.slice_rows(first, count) : t.slice_cols(first, count);
            });
    };
    each_part([&](const auto& part) {
        k.row_products(exec, row_of(of_part, 0), part(x), part(x), {}, 0);
        k.row_products(exec, row_of(of_part, 1), part(dy), part(x), part(weight), form.offset);
        k.add(exec, sums, of_part);
    });
    each_part([&](const auto& part) {
        k.divided_norm(exec, part(in_parts), part(x), row_of(sums, 0), part(weight), width, form);
        k.divided_norm_backward(exec, part(dx_in_parts), part(dweight_in_parts), part(dy), part(x),
                                row_of(sums, 0), row_of(sums, 1), part(weight), width, form);
    });
    CHECK(normalised_error(values_of(in_parts), values_of(y)) <= 1e-14);
    CHECK(normalised_error(values_of(dx_in_parts), values_of(dx)) <= 1e-14);
    CHECK(normalised_error(values_of(dweight_in_parts), values_of(dweight)) <= 1e-14);
}

TEST_CASE("the gradient of cross entropy agrees with finite differences") {
    struct Sizes {
        int64_t rows, vocabulary;
        bool z = false;
        double scale = 1;
    };
    for (const auto& [rows, vocabulary, z, scale] :
         {Sizes{1, 1}, {1, 5}, {13, 31}, {13, 31, true}, {13, 31, false, 0.4}, {13, 31, true, 1.7}}) {
        const KernelCase c = cross_entropy_case(rows, vocabulary, true, false, false, z, scale);
        const Operands o = run_case(c, cpu_kernels(), Dtype::f64, Dtype::f64);
        const std::vector<double> gradient = values_of(o[5]);
        for (int64_t i = 0; i < o[1].count(); i += 3) {
            const double slope = derivative(o[1], i, [&] {
                TestExec exec;
                c.call(cpu_kernels(), exec, o);
                const std::vector<double> losses = values_of(o[0]);
                return std::accumulate(losses.begin(), losses.end(), 0.0);
            });
            CHECK(close(gradient[size_t(i)], slope, 1e-9));
        }
    }
}

TEST_CASE("the gradient of the squared error agrees with finite differences") {
    const KernelCase c = squared_error_case(9, 5, {.first = 1, .length = 4}, true, false);
    const Operands o = run_case(c, cpu_kernels(), Dtype::f64, Dtype::f64);
    const std::vector<double> gradient = values_of(o[4]);
    for (int64_t i = 0; i < o[1].count(); ++i) {
        const double slope = derivative(o[1], i, [&] {
            TestExec exec;
            c.call(cpu_kernels(), exec, o);
            const std::vector<double> losses = values_of(o[0]);
            return std::accumulate(losses.begin(), losses.end(), 0.0);
        });
        CHECK(close(gradient[size_t(i)], slope, 1e-9));
    }
}

TEST_CASE("the squared error of a sample of weight 0 is 0, whatever its prediction is") {
    for (const bool in_place : {false, true}) {
        const KernelCase c = squared_error_case(6, 3, {.first = 0, .length = 2}, true, in_place);
        for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
            const Operands o = prepared_operands(c, type, type);
            REQUIRE(element(o[3], 2) == 0);
            for (int64_t i = 12; i < 18; ++i) set_element(o[1], i, std::nan(""));
            PlannedExec exec(c, o, 2);
            c.call(cpu_kernels(), exec, o);
            const Tensor gradient = in_place ? o[1] : o[4];
            for (int64_t row = 4; row < 6; ++row) CHECK(element(o[0], row) == 0);
            for (int64_t i = 12; i < 18; ++i) CHECK(element(gradient, i) == 0);
            CHECK(element(o[0], 0) > 0);
        }
    }
}

TEST_CASE("rope, latent keys and embedding are linear: their backward is the transpose") {
    // <A x, y> = <x, A^T y>
    for (RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split}) {
        const Operands forward = run_case(rope_case(9, 3, RopeShape::whole(10, layout), false), cpu_kernels(),
                                          Dtype::f64, Dtype::f64, 2, 1);
        const Operands x =
            make_operands(rope_case(9, 3, RopeShape::whole(10, layout), false), Dtype::f64, Dtype::f64, 1);
        const KernelCase inverse = rope_case(9, 3, RopeShape::whole(10, layout), true);
        Operands back = make_operands(inverse, Dtype::f64, Dtype::f64, 1),
                 y = make_operands(inverse, Dtype::f64, Dtype::f64, 2);
        Exec exec;
        test::copy_converting(back[0], y[0]);
        inverse.call(cpu_kernels(), exec, back);
        CHECK(relatively_close(dot(forward[0], y[0]), dot(x[0], back[0]), 1e-12));
    }
    {
        const LatentShape s = {3, 5, 4, 7};
        const KernelCase there = latent_keys_case(9, s, false), back = latent_keys_case(9, s, true);
        const Operands y = run_case(there, cpu_kernels(), Dtype::f64, Dtype::f64, 2, 1),
                       x = run_case(back, cpu_kernels(), Dtype::f64, Dtype::f64, 2, 2);
        CHECK(relatively_close(dot(y[0], x[0]) + dot(y[1], x[1]), dot(y[2], x[2]) + dot(y[3], x[3]), 1e-12));
    }
    for (const double scale : {1.0, 2.6}) {
        const Operands forward =
            run_case(embedding_case(29, 5, 11, false, scale), cpu_kernels(), Dtype::f64, Dtype::f64);
        KernelCase backward = embedding_backward_case(29, 5, 11, false, scale);
        backward.arguments[0].deviation = 0;
        const Operands gradient = run_case(backward, cpu_kernels(), Dtype::f64, Dtype::f64);
        CHECK(relatively_close(dot(forward[0], gradient[1]), dot(forward[2], gradient[0]), 1e-12));
    }
}

TEST_CASE("the gradient of GELU of very large numbers is 0 or 1") {
    for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16})
        for (const double large : {1e3, 1e9, 1e18, 1e30}) {
            OwnedTensor y(type, {1, 2}), gate_up(type, {1, 4}), dy(type, {1, 2});
            for (const auto& [i, value] : {std::pair(0, large), {1, -large}, {2, 1.0}, {3, 1.0}})
                set_element(gate_up, i, value);
            for (const int i : {0, 1}) set_element(dy, i, 1);
            TestExec exec;
            const double given = element(gate_up, 0);
            cpu_kernels().geglu(exec, y, gate_up);
            cpu_kernels().geglu_backward(exec, gate_up, dy, gate_up);
            CAPTURE(name_of(type), large);
            CHECK(element(y, 0) == given);
            CHECK(close(element(y, 1), 0, 1e-6));
            CHECK(close(element(gate_up, 0), 1, 1e-6));
            CHECK(close(element(gate_up, 1), 0, 1e-6));
        }
}

TEST_CASE("gradients may overwrite the operands that the table allows") {
    for (Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        // dq, dk, dv in the memory of q, k, v, as columns of one matrix
        const AttentionShape s = {2, 101, 4, 2, 12, 0.3};
        const KernelCase c = attention_case(s, true, true, true);
        const Operands apart = run_case(c, cpu_kernels(), type, type);
        const Operands o = prepared_operands(c, type, type);
        OwnedTensor qkv(type, {202, 96});
        const Tensor q = qkv.view.slice_cols(0, 48), k = qkv.view.slice_cols(48, 24),
                     v = qkv.view.slice_cols(72, 24);
        test::copy_converting(q, o[2]);
        test::copy_converting(k, o[3]);
        test::copy_converting(v, o[4]);
        PlannedExec exec(c, o, 2);
        cpu_kernels().attention_backward(exec, q, k, v, o[6], o[0], o[1], q, k, v, o[5], s, false);
        CHECK(values_of(q) == values_of(apart[7]));
        CHECK(values_of(k) == values_of(apart[8]));
        CHECK(values_of(v) == values_of(apart[9]));

        // dx in the memory of dy
        const KernelCase rms = rms_norm_backward_case(70, 33, Plus::other);
        const Operands rms_apart = run_case(rms, cpu_kernels(), type, type);
        const Operands r = prepared_operands(rms, type, type);
        PlannedExec rms_exec(rms, r, 2);
        cpu_kernels().rms_norm_backward(rms_exec, r[2], r[1], r[2], r[3], r[4], r[5], r[6], 1e-5);
        CHECK(values_of(r[2]) == values_of(rms_apart[0]));
        CHECK(values_of(r[1]) == values_of(rms_apart[1]));
        const KernelCase layer = layer_norm_backward_case(70, 33, true, Plus::other);
        const Operands layer_apart = run_case(layer, cpu_kernels(), type, type);
        const Operands l = prepared_operands(layer, type, type);
        cpu_kernels().layer_norm_backward(rms_exec, l[2], l[1], l[2], l[3], l[4], l[5], l[6], l[7]);
        CHECK(values_of(l[2]) == values_of(layer_apart[0]));
        CHECK(values_of(l[1]) == values_of(layer_apart[1]));
    }
}

TEST_CASE("a document does not see the others") {
    // Two documents in one sequence give the results that each gives alone: both in the first tiles, and in
    // the case that a tile of queries with both documents comes after tiles of keys that only the first
    // document sees.
    for (const auto& [length, second] : {std::pair<int64_t, int64_t>{83, 29}, {223, 110}})
        for (bool backward : {false, true}) {
            CAPTURE(length, backward);
            const AttentionShape whole = {1, length, 2, 1, 6, 0.4};
            const KernelCase c = attention_case(whole, false, backward);
            Operands o = prepared_operands(c, Dtype::f64, Dtype::f64);
            OwnedTensor start(Dtype::i32, {length});
            for (int64_t t = second; t < length; ++t) set_element(start, t, double(second));
            TestExec exec;
            cpu_kernels().attention(exec, o[0], o[1], o[2], o[3], o[4], start, whole);
            if (backward)
                cpu_kernels().attention_backward(exec, o[7], o[8], o[9], o[6], o[0], o[1], o[2], o[3], o[4],
                                                 start, whole, false);
            for (const auto& [first, count] :
                 {std::pair<int64_t, int64_t>{0, second}, {second, length - second}}) {
                AttentionShape part = whole;
                part.sequence = count;
                const auto rows = [&, first = first, count = count](size_t i) {
                    return o[i].slice_rows(first, count);
                };
                OwnedTensor out(Dtype::f64, {count, 12}), lse(Dtype::f64, {2, count}),
                    dq(Dtype::f64, {count, 12}), dk(Dtype::f64, {count, 6}), dv(Dtype::f64, {count, 6});
                cpu_kernels().attention(exec, out, lse, rows(2), rows(3), rows(4), {}, part);
                CHECK(normalised_error(values_of(out), values_of(rows(0))) <= 1e-14);
                if (!backward) continue;
                cpu_kernels().attention_backward(exec, dq, dk, dv, rows(6), out, lse, rows(2), rows(3),
                                                 rows(4), {}, part, false);
                CHECK(normalised_error(values_of(dq), values_of(rows(7))) <= 1e-13);
                CHECK(normalised_error(values_of(dk), values_of(rows(8))) <= 1e-13);
                CHECK(normalised_error(values_of(dv), values_of(rows(9))) <= 1e-13);
            }
        }
}

TEST_CASE("attention to parts of the keys adds up to attention to all of them") {
    // the queries of one rank of two, and the keys of both in turn; of the second half of the keys most
    // queries see nothing
    const AttentionShape all = {2, 64, 4, 2, 6, 0.4, {64, 0, 64}, {128}};
    const std::vector<SequencePart> parts = {{64, 0, 64}, {64, 32, 0}};
    for (const bool documents : {false, true}) {
        CAPTURE(documents);
        const Operands o =
            run_case(attention_case(all, documents, true), cpu_kernels(), Dtype::f64, Dtype::f64);
        const Tensor start = documents ? o[5] : Tensor();
        TestExec exec;
        OwnedTensor out(Dtype::f64, o[0].shape), lse(Dtype::f64, o[1].shape), dq(Dtype::f64, o[7].shape),
            dk(Dtype::f64, o[8].shape), dv(Dtype::f64, o[9].shape), other(out.view.dtype, out.view.shape),
            other_lse(Dtype::f64, lse.view.shape);
        for (const SequencePart& part : parts) {
            AttentionShape s = all;
            s.key_part = part;
            OwnedTensor k(Dtype::f64, {2 * part.count, 12}), v(Dtype::f64, k.view.shape),
                dk_part(Dtype::f64, k.view.shape), dv_part(Dtype::f64, k.view.shape);
            const auto copy_keys = [&](Tensor to, Tensor from, bool back) {
                for (int64_t i = 0; i < 2 * part.count; ++i) {
                    const int64_t row = i / part.count * 128 + part.index(i % part.count);
                    test::copy_converting(back ? from.slice_rows(row, 1) : to.slice_rows(i, 1),
                                          back ? to.slice_rows(i, 1) : from.slice_rows(row, 1));
                }
            };
            copy_keys(k, o[3], false);
            copy_keys(v, o[4], false);
            const bool first = part == parts[0];
            cpu_kernels().attention(exec, first ? out : other, first ? lse : other_lse, o[2], k, v, start, s);
            if (!first) {
                CHECK(element(other_lse, 5) == -std::numeric_limits<double>::infinity());
                CHECK(element(other, 5 * 24) == 0);
                cpu_kernels().merge_attention(exec, out, lse, o[2], k, v, start, s);
            }
            cpu_kernels().attention_backward(exec, dq, dk_part, dv_part, o[6], o[0], o[1], o[2], k, v, start,
                                             s, true);
            copy_keys(dk_part, dk, true);
            copy_keys(dv_part, dv, true);
        }
        CHECK(normalised_error(values_of(out), values_of(o[0])) <= 1e-14);
        CHECK(normalised_error(values_of(lse), values_of(o[1])) <= 1e-14);
        CHECK(normalised_error(values_of(dq), values_of(o[7])) <= 1e-13);
        CHECK(normalised_error(values_of(dk), values_of(o[8])) <= 1e-13);
        CHECK(normalised_error(values_of(dv), values_of(o[9])) <= 1e-13);
    }
}

TEST_CASE("merging with keys that no query sees changes nothing, in either order") {
    // of the three queries, the keys at 0 and 1 are seen by all, those at 8 and 9 by none
    const double none = -std::numeric_limits<double>::infinity();
    AttentionShape seen = {1, 3, 1, 1, 2, 0.5, {3, 4}, {2}}, hidden = seen;
    hidden.key_part = {2, 8};
    const Operands o = run_case(attention_case(seen, false, false), cpu_kernels(), Dtype::f64, Dtype::f64);
    for (const bool first : {false, true}) {
        OwnedTensor out(Dtype::f64, {3, 2}), lse(Dtype::f64, {1, 3});
        TestExec exec;
        cpu_kernels().attention(exec, out, lse, o[2], o[3], o[4], {}, first ? hidden : seen);
        if (first) CHECK(values_of(lse) == std::vector<double>(3, none));
        cpu_kernels().merge_attention(exec, out, lse, o[2], o[3], o[4], {}, first ? seen : hidden);
        CHECK(values_of(out) == values_of(o[0]));
        CHECK(values_of(lse) == values_of(o[1]));
        cpu_kernels().attention(exec, out, lse, o[2], o[3], o[4], {}, hidden);
        cpu_kernels().merge_attention(exec, out, lse, o[2], o[3], o[4], {}, hidden);
        CHECK(values_of(out) == std::vector<double>(6, 0));
        CHECK(values_of(lse) == std::vector<double>(3, none));
    }
}

TEST_CASE("large scores neither overflow nor lose the sum") {
    const AttentionShape s = {1, 60, 1, 1, 4, 1.0};
    // bfloat16: the probabilities are rounded (not their sum), then the output is: 2^-8 each
    for (const auto& [type, slack] :
         {std::pair{Dtype::f64, 1e-14}, {Dtype::f32, 1e-6}, {Dtype::bf16, 1. / 128}}) {
        CAPTURE(name_of(type));
        KernelCase c = attention_case(s, false, false);
        c.arguments[2].deviation = c.arguments[3].deviation = 30;  // scores of some thousands
        const Operands o = run_case(c, cpu_kernels(), type, type);
        // a mean of the values: between the smallest and the largest, up to rounding
        for (int64_t j = 0; j < 4; ++j) {
            double least = INFINITY, largest = -INFINITY;
            for (int64_t i = 0; i < 60; ++i) {
                least = std::min(least, element(o[4], 4 * i + j));
                largest = std::max(largest, element(o[4], 4 * i + j));
                const double most = std::max(std::fabs(least), std::fabs(largest)) * slack;
                CHECK(element(o[0], 4 * i + j) >= least - most);
                CHECK(element(o[0], 4 * i + j) <= largest + most);
            }
        }
        for (double value : values_of(o[1])) CHECK(std::isfinite(value));
    }
    KernelCase c = cross_entropy_case(4, 9, true, false);
    c.arguments[1].deviation = 1e4;
    const Operands o = run_case(c, cpu_kernels(), Dtype::f32, Dtype::f32);
    for (double value : values_of(o[0])) CHECK(std::isfinite(value));
    for (double value : values_of(o[5])) CHECK(std::fabs(value) <= 1);
}

TEST_CASE("cross entropy ignores -100 and flags labels outside the vocabulary without reading there") {
    Exec exec;
    OwnedTensor losses(Dtype::f32, {4}), logits(Dtype::f32, {4, 3}), gradient(Dtype::f32, {4, 3}),
        labels(Dtype::i32, {4}), lse(Dtype::f32, {4}), at_label(Dtype::f32, {4});
    poison(gradient);
    const double values[] = {2, -100, 3, -1};
    for (int64_t t = 0; t < 4; ++t) set_element(labels, t, values[t]);
    cpu_kernels().log_sum_exp(exec, lse, at_label, logits, labels, {0, 3});
    cpu_kernels().cross_entropy(exec, losses, {}, gradient, logits, labels, lse, at_label, {0, 3}, 1, 0, {});
    CHECK(close(element(losses, 0), std::log(3.0), 1e-6));
    CHECK(element(losses, 1) == 0);
    CHECK(std::isnan(element(losses, 2)));
    CHECK(std::isnan(element(losses, 3)));
    CHECK(close(element(gradient, 2), 1.0 / 3 - 1, 1e-6));
    for (int64_t i = 3; i < 12; ++i) CHECK(element(gradient, i) == 0);
}

TEST_CASE("adam writes nothing if the step is not finite, and rounds by global index") {
    const KernelCase c = adam_case(100, true, true);
    for (Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        const Operands before = make_operands(c, type, type), o = make_operands(c, type, type);
        Exec exec;
        StepScalars s;
        s.refusals = 1;
        s.groups[0].learning_rate = 1;
        cpu_kernels().adam(exec, {o[0], o[1], o[2], o[3], o[4]}, {}, {}, s);
        for (size_t i = 0; i < 3; ++i) CHECK(values_of(o[i]) == values_of(before[i]));
        for (double value : values_of(o[4])) CHECK(std::isnan(value));

        // two parts, given their first indices, have the results of the whole
        s.refusals = 0;
        s.groups[0].learning_rate = 1e-2;
        s.step = 7;
        AdamOptions options;
        ElementPlace place;
        options.seed = 3;
        const Operands parts = make_operands(c, type, type);
        cpu_kernels().adam(exec, {o[0], o[1], o[2], o[3], o[4]}, options, place, s);
        for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 37}, {37, 63}}) {
            const auto rows = [&, first = first, count = count](size_t i) {
                return parts[i].slice_rows(first, count);
            };
            place.first_index = uint64_t(first);
            cpu_kernels().adam(exec, {rows(0), rows(1), rows(2), rows(3), rows(4)}, options, place, s);
        }
        for (size_t i : {size_t(0), size_t(1), size_t(2), size_t(4)})
            CHECK(values_of(parts[i]) == values_of(o[i]));
        if (type != Dtype::bf16) continue;
        const Operands other = make_operands(c, type, type);
        place.first_index = 1;
        cpu_kernels().adam(exec, {other[0], other[1], other[2], other[3], other[4]}, options, place, s);
        CHECK(values_of(other[0]) != values_of(o[0]));
    }
}
