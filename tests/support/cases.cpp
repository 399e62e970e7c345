// SPDX-License-Identifier: Apache-2.0
#include "support/cases.hpp"

#include "coeus/base/random.hpp"
#include "coeus/state/step_state.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coeus::test {

namespace {

using A = Argument;
constexpr Role input = Role::input, output = Role::output, update = Role::update;
constexpr Kind acc = Kind::acc, compute = Kind::compute, index_kind = Kind::index;

StepScalars scalars_for_tests() {
    StepScalars s;
    s.groups[0].learning_rate = 1e-2;
    s.groups[0].weight_decay = 0.3;
    s.groups[0].bias_correction1 = 1 - std::pow(0.9, 3);
    s.groups[0].bias_correction2 = 1 - std::pow(0.95, 3);
    s.groups[0].set_factors();
    s.loss_scale = 1.0 / 16;
    s.clip = 0.75;
    s.step = 3;
    return s;
}

// In the memory of the device that runs the kernels, until these have ended.
class ScalarsForTests {
public:
    explicit ScalarsForTests(Exec& exec) : exec_(exec), state_(*exec.device) {
        state_.stage(scalars_for_tests());
        state_.bring(exec);
    }
    ~ScalarsForTests() { exec_.queue->finish(); }
    ScalarsForTests(const ScalarsForTests&) = delete;
    ScalarsForTests& operator=(const ScalarsForTests&) = delete;
    const StepScalars& get() const { return state_.scalars(); }

private:
    Exec& exec_;
    StepState state_;
};

std::string shape_name(std::initializer_list<int64_t> extents) {
    return Shape(extents).text();
}

KernelCase balance_sequences_case(int64_t tokens, int64_t experts, int64_t sequences,
                                  const SequenceRows& rows, bool sigmoid) {
    KernelCase c;
    c.name = fmt::format("balance_sequences {} x {} {}", tokens, experts, sigmoid ? "sigmoid" : "softmax");
    c.arguments = {{"dlogits", update, acc, {tokens, experts}, 0, 1, 2},
                   {"losses", output, acc, {tokens}},
                   {"logits", input, acc, {tokens, experts}, 0, 1.5, 1},
                   {"counts", input, Kind::count, {sequences, experts}, 1},
                   {"experts", input, index_kind, {tokens, 2}, double(experts)}};
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.count_by_sequence(e, o[3], o[4], rows);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.balance_sequences(e, o[0], o[1], o[2], o[3], rows, 30, {.top_k = 2, .sigmoid = sigmoid},
                            ScalarsForTests(e).get());
    };
    return c;
}

}  // namespace

KernelCase gemm_case(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, Residual residual,
                     bool acc_output, int64_t padding) {
    const Kind kind = acc_output ? acc : compute;
    KernelCase c;
    c.name =
        fmt::format("gemm {}x{}x{} {}{}{}{}{}", m, n, k, transpose_a ? 't' : 'n', transpose_b ? 't' : 'n',
                    residual == Residual::none         ? ""
                    : residual == Residual::accumulate ? " accumulate"
                                                       : " residual",
                    acc_output ? " acc" : "", padding ? " strided" : "");
    const double deviation = 1 / std::sqrt(double(std::max<int64_t>(1, k)));
    c.arguments = {
        {"d", residual == Residual::accumulate ? update : output, kind, {m, n}, 0, 1, padding},
        {"a", input, compute, transpose_a ? Shape{k, m} : Shape{m, k}, 0, deviation, padding},
        {"b", input, compute, transpose_b ? Shape{n, k} : Shape{k, n}, 0, 1, padding},
        {"c", input, kind, {m, n}, 0, 1, padding},
    };
    c.call = [=](const Kernels& kernels, Exec& exec, const Operands& o) {
        const Tensor given = residual == Residual::none         ? Tensor()
                             : residual == Residual::accumulate ? o[0]
                                                                : o[3];
        kernels.gemm(exec, o[0], {o[1], transpose_a}, {o[2], transpose_b}, given);
    };
    return c;
}

KernelCase rope_case(int64_t tokens, int64_t heads, const RopeShape& s, bool inverse, int64_t padding) {
    const int64_t rows = std::max<int64_t>(1, tokens / 2);
    KernelCase c;
    c.name = fmt::format("rope {}x{} heads of {}{}{}{}{}", tokens, heads, s.head_dim,
                         s.width < s.head_dim ? fmt::format(" from {} on", s.first) : "",
                         s.layout == RopeLayout::interleaved ? "" : " half-split", inverse ? " inverse" : "",
                         padding ? " strided" : "");
    c.arguments = {{"x", update, compute, {tokens, heads * s.head_dim}, 0, 1, padding},
                   {"table", input, acc, {rows, s.width}},
                   {"positions", input, index_kind, {tokens}, double(rows)}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) { k.rope(e, o[0], o[1], o[2], s, inverse); };
    return c;
}

KernelCase glu_case(Activation activation, int64_t rows, int64_t width) {
    const bool silu = activation == Activation::silu;
    return {
        (silu ? "swiglu " : "geglu ") + shape_name({rows, width}),
        {{"y", output, compute, {rows, width}}, {"gate_up", input, compute, {rows, 2 * width}, 0, 3}},
        [=](const Kernels& k, Exec& e, const Operands& o) { (silu ? k.swiglu : k.geglu)(e, o[0], o[1]); }};
}

KernelCase glu_backward_case(Activation activation, int64_t rows, int64_t width, bool in_place) {
    const bool silu = activation == Activation::silu;
    return {(silu ? "swiglu_backward " : "geglu_backward ") + shape_name({rows, width}) +
                (in_place ? " in place" : ""),
            {{"dgate_up", in_place ? update : output, compute, {rows, 2 * width}, 0, 3},
             {"dy", input, compute, {rows, width}},
             {"gate_up", input, compute, {rows, 2 * width}, 0, 3}},
            [=](const Kernels& k, Exec& e, const Operands& o) {
                (silu ? k.swiglu_backward : k.geglu_backward)(e, o[0], o[1], in_place ? o[0] : o[2]);
            }};
}

namespace {

// The whole vocabulary, or the middle one of three parts.
VocabularyPart part_of(int64_t vocabulary, bool divided, double scale) {
    return divided ? VocabularyPart{vocabulary, 3 * vocabulary, scale} : VocabularyPart{0, vocabulary, scale};
}
std::string scaled_name(double scale) {
    return scale == 1 ? "" : fmt::format(", times {}", scale);
}
const char* divided_name(bool divided) {
    return divided ? ", one part of 3" : "";
}

}  // namespace

KernelCase embedding_case(int64_t tokens, int64_t width, int64_t vocabulary, bool divided, double scale) {
    const VocabularyPart part = part_of(vocabulary, divided, scale);
    return {fmt::format("embedding {}x{} of {}{}{}", tokens, width, vocabulary, divided_name(divided),
                        scaled_name(scale)),
            {{"y", output, compute, {tokens, width}},
             {"tokens", input, index_kind, {tokens}, double(part.total)},
             {"table", input, compute, {vocabulary, width}}},
            [=](const Kernels& k, Exec& e, const Operands& o) { k.embedding(e, o[0], o[1], o[2], part); }};
}

KernelCase embedding_backward_case(int64_t tokens, int64_t width, int64_t vocabulary, bool divided,
                                   double scale) {
    const VocabularyPart part = part_of(vocabulary, divided, scale);
    return {fmt::format("embedding_backward {}x{} of {}{}{}", tokens, width, vocabulary,
                        divided_name(divided), scaled_name(scale)),
            {{"dtable", update, acc, {vocabulary, width}},
             {"dy", input, compute, {tokens, width}},
             {"tokens", input, index_kind, {tokens}, double(part.total)}},
            [=](const Kernels& k, Exec& e, const Operands& o) {
                k.embedding_backward(e, o[0], o[1], o[2], part);
            }};
}

KernelCase log_sum_exp_case(int64_t rows, int64_t vocabulary, bool divided, double scale) {
    const VocabularyPart part = part_of(vocabulary, divided, scale);
    KernelCase c;
    c.name = "log_sum_exp " + shape_name({rows, vocabulary}) + divided_name(divided) + scaled_name(scale);
    c.arguments = {{"lse", output, acc, {rows}},
                   {"at_label", output, acc, {rows}},
                   {"logits", input, compute, {rows, vocabulary}, 0, 3},
                   {"labels", input, index_kind, {rows, 2}, double(part.total)}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.log_sum_exp(e, o[0], o[1], o[2], o[3].slice_cols(1, 1), part);
    };
    return c;
}

KernelCase add_log_sum_exp_case(int64_t parts, int64_t rows) {
    KernelCase c;
    c.name = "add_log_sum_exp " + shape_name({parts, rows});
    c.arguments = {{"lse", output, acc, {rows}}, {"parts", input, acc, {parts, rows}, 0, 3}};
    c.call = [](const Kernels& k, Exec& e, const Operands& o) { k.add_log_sum_exp(e, o[0], o[1]); };
    return c;
}

// The results lie in every other place, as those of a chunk of every other token.
KernelCase largest_of_rows_case(int64_t rows, int64_t vocabulary, double scale) {
    KernelCase c;
    c.name = "largest_of_rows " + shape_name({rows, vocabulary}) + scaled_name(scale);
    c.arguments = {{"largest", update, acc, {rows, 2}}, {"logits", input, compute, {rows, vocabulary}, 0, 3}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.largest_of_rows(e, o[0].slice_cols(1, 1), o[1], scale);
    };
    return c;
}

KernelCase sum_parts_case(int64_t parts, int64_t rows, int64_t cols) {
    KernelCase c;
    c.name = "sum_parts " + shape_name({parts, rows, cols});
    c.arguments = {{"out", output, compute, {rows, cols}}, {"parts", input, compute, {parts * rows, cols}}};
    c.call = [](const Kernels& k, Exec& e, const Operands& o) { k.sum_parts(e, o[0], o[1]); };
    return c;
}

KernelCase cross_entropy_case(int64_t rows, int64_t vocabulary, bool gradient, bool in_place, bool divided,
                              bool z, double scale) {
    const VocabularyPart part = part_of(vocabulary, divided, scale);
    KernelCase c;
    const int64_t step = divided ? 2 : 1;  // between labels
    c.name = "cross_entropy " + shape_name({rows, vocabulary}) +
             (in_place   ? " in place"
              : gradient ? ""
                         : " without gradient") +
             divided_name(divided) + (z ? " z-loss" : "") + scaled_name(scale);
    c.arguments = {{"losses", output, acc, {rows}},
                   {"logits", in_place ? update : input, compute, {rows, vocabulary}, 0, 3},
                   {"labels", input, index_kind, {rows, step}, double(part.total)},
                   {"lse", output, acc, {rows}},
                   {"at_label", output, acc, {rows}}};
    if (gradient && !in_place) c.arguments.push_back({"dlogits", output, compute, {rows, vocabulary}});
    if (z) c.arguments.push_back({"z_losses", output, acc, {rows}});
    c.prepare = [=](const Kernels&, Exec&, const Operands& o) {
        for (int64_t t = 2; t < rows; t += 5) *Tensor(o[2]).row<int32_t>(t) = -100;
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        const Tensor labels = o[2].slice_cols(0, 1);
        k.log_sum_exp(e, o[3], o[4], o[1], labels, part);
        k.cross_entropy(e, o[0], z ? o.tensors.back() : Tensor(),
                        !gradient  ? Tensor()
                        : in_place ? o[1]
                                   : o[5],
                        o[1], labels, o[3], o[4], part, 0.75, z ? 0.05 : 0, ScalarsForTests(e).get());
    };
    c.bound_bf16 = 4e-3;
    return c;
}

KernelCase momentum_case(int64_t count, bool nesterov) {
    return {fmt::format("momentum {}{}", count, nesterov ? " nesterov" : ""),
            {{"buffer", update, acc, {count}}, {"direction", update, acc, {count}}},
            [=](const Kernels& k, Exec& e, const Operands& o) {
                k.momentum(e, o[0], o[1], {.momentum = 0.9, .nesterov = nesterov}, ScalarsForTests(e).get());
            }};
}

KernelCase descend_case(int64_t count, bool compute_copy) {
    KernelCase c;
    c.name = fmt::format("descend {}{}", count, compute_copy ? " copy" : "");
    c.arguments = {{"master", update, compute, {count}}, {"direction", input, acc, {count}}};
    if (compute_copy) c.arguments.push_back({"compute", output, compute, {count}});
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.descend(e, o[0], o[1], compute_copy ? o[2] : Tensor(), {.factor = 2.5},
                  {.stream = stream_of("test")}, ScalarsForTests(e).get());
    };
    return c;
}

KernelCase adam_case(int64_t count, bool decoupled, bool compute_copy, bool narrow) {
    KernelCase c;
    c.name = fmt::format("adam {}{}{}{}", count, decoupled ? "" : " coupled", compute_copy ? " copy" : "",
                         narrow ? " of a narrow gradient" : "");
    c.arguments = {{"master", update, compute, {count}},
                   {"exp_avg", update, compute, {count}, 0, 0.1},
                   {"exp_avg_sq", update, compute, {count}, 0.5, 0.1},
                   {"grad", input, narrow ? compute : acc, {count}}};
    if (compute_copy) c.arguments.push_back({"compute", output, compute, {count}});
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        AdamOptions options;
        options.decay = decoupled ? 0 : 0.1;
        k.adam(e, {o[0], o[1], o[2], o[3], compute_copy ? o[4] : Tensor()}, options,
               {.stream = stream_of("test")}, ScalarsForTests(e).get());
    };
    c.bound_bf16 = 6e-3;
    return c;
}

namespace {

KernelCase pair_case(const std::string& name, Role role, Kind out_kind, Kind in_kind, Shape shape,
                     int64_t padding, void (*Kernels::*entry)(Exec&, Tensor, Tensor)) {
    return {name + " " + shape.text() + (padding ? " strided" : ""),
            {{"out", role, out_kind, shape, 0, 1, padding}, {"a", input, in_kind, shape, 0, 1, padding}},
            [=](const Kernels& k, Exec& e, const Operands& o) { (k.*entry)(e, o[0], o[1]); }};
}

}  // namespace

std::vector<KernelCase> test_cases() {
    std::vector<KernelCase> list;
    using R = Residual;
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                  {1, 7, 5},
                                  {13, 1, 9},
                                  {17, 33, 65},
                                  {64, 48, 96},
                                  {67, 130, 300},
                                  {200, 70, 520}})
        for (bool ta : {false, true})
            for (bool tb : {false, true}) list.push_back(gemm_case(m, n, k, ta, tb, R::none));
    list.push_back(gemm_case(19, 23, 31, false, true, R::other));
    list.push_back(gemm_case(19, 23, 31, false, true, R::other, true));
    list.push_back(gemm_case(19, 23, 31, false, true, R::accumulate));
    list.push_back(gemm_case(19, 23, 31, true, false, R::accumulate, true));
    list.push_back(gemm_case(130, 75, 301, true, false, R::accumulate, true));
    for (R residual : {R::none, R::accumulate, R::other})
        for (bool ta : {false, true}) list.push_back(gemm_case(37, 41, 29, ta, !ta, residual, ta, 5));
    for (R residual : {R::none, R::other, R::accumulate})
        list.push_back(gemm_case(21, 17, 9001, false, false, residual));
    list.push_back(gemm_case(0, 4, 3, false, false, R::none));
    list.push_back(gemm_case(3, 0, 4, false, true, R::none));
    list.push_back(gemm_case(3, 4, 0, false, true, R::none));
    list.push_back(gemm_case(3, 4, 0, true, false, R::other));

    for (KernelCase& c : attention_cases()) list.push_back(std::move(c));
    for (int64_t m : {2, 5, 16})  // few rows, which are read in place
        for (R residual : {R::none, R::other, R::accumulate})
            list.push_back(gemm_case(m, 75, 301, false, true, residual, m == 5, m == 2 ? 3 : 0));
    for (const auto& [rows, width] :
         {std::pair<int64_t, int64_t>{1, 1}, {1, 7}, {5, 16}, {131, 33}, {64, 256}}) {
        list.push_back(layer_norm_case(rows, width, true));
        list.push_back(layer_norm_case(rows, width, false));
        for (Plus plus : {Plus::none, Plus::other, Plus::in_dx}) {
            list.push_back(rms_norm_case(rows, width, plus, plus == Plus::in_dx ? 1 : 0));
            list.push_back(rms_norm_backward_case(rows, width, plus, plus == Plus::other ? 1 : 0));
            // one column: the mean is the value itself and every derivative is 0
            if (width == 1) continue;
            list.push_back(layer_norm_backward_case(rows, width, true, plus));
            list.push_back(layer_norm_backward_case(rows, width, false, plus));
        }
        for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
            list.push_back(glu_case(activation, rows, width));
            list.push_back(glu_backward_case(activation, rows, width, false));
            list.push_back(glu_backward_case(activation, rows, width, true));
        }
        list.push_back(embedding_case(rows, width, 11));
        list.push_back(embedding_backward_case(rows, width, 11));
        list.push_back(cross_entropy_case(rows, width, true, false));
        list.push_back(cross_entropy_case(rows, width, true, true));
        list.push_back(cross_entropy_case(rows, width, false, false));
        list.push_back(cross_entropy_case(rows, width, true, true, true));
        list.push_back(cross_entropy_case(rows, width, true, false, false, true));
        list.push_back(cross_entropy_case(rows, width, true, true, true, true));
        list.push_back(log_sum_exp_case(rows, width));
        list.push_back(log_sum_exp_case(rows, width, true));
        list.push_back(cross_entropy_case(rows, width, true, true, true, true, 0.4));
        list.push_back(log_sum_exp_case(rows, width, true, 1.7));
        list.push_back(add_log_sum_exp_case(3, rows));
        list.push_back(largest_of_rows_case(rows, width));
        list.push_back(largest_of_rows_case(rows, width, 0.4));
        list.push_back(sum_parts_case(3, rows, width));
        list.push_back(embedding_case(rows, width, 11, true));
        list.push_back(embedding_backward_case(rows, width, 11, true));
        list.push_back(embedding_case(rows, width, 11, true, 2.6));
        list.push_back(embedding_backward_case(rows, width, 11, true, 2.6));
        list.push_back(pair_case("cast", output, compute, acc, {rows, width}, 0, &Kernels::cast));
        list.push_back(pair_case("cast", output, acc, compute, {rows, width}, 3, &Kernels::cast));
        list.push_back(pair_case("add", update, acc, compute, {rows, width}, 0, &Kernels::add));
        list.push_back(pair_case("add", update, acc, acc, {rows, width}, 2, &Kernels::add));
        for (RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split})
            for (bool inverse : {false, true})
                list.push_back(
                    rope_case(rows, 3, RopeShape::whole(2 * width, layout), inverse, inverse ? 4 : 0));
        list.push_back(rope_case(rows, 2, {width + 4, width, 4}, width == 7));
        for (bool weighted : {false, true}) {
            list.push_back(head_norm_case(rows, 3, width, weighted, rows == 5, rows == 5 ? 1 : 0));
            if (width == 1) continue;
            for (Place place : {Place::own, Place::of_gradient, Place::of_input})
                list.push_back(head_norm_backward_case(rows, 3, width, weighted, place,
                                                       place == Place::of_input ? 1 : 0));
        }
        for (const bool weighted : {false, true})
            for (const bool squares : {false, true})
                list.push_back(row_products_case(rows, width, weighted, squares));
        for (const bool in_place : {false, true})
            list.push_back(divided_norm_case(rows, width, in_place, in_place ? 1 : 0));
        for (Place place : {Place::own, Place::of_gradient, Place::of_input})
            list.push_back(divided_norm_backward_case(rows, width, place, place == Place::of_input ? 1 : 0));
        for (Kind kind : {compute, acc})
            list.push_back(
                {fmt::format("add_bias {}{}", shape_name({rows, width}), kind == acc ? " acc" : ""),
                 {{"y", update, kind, {rows, width}, 0, 1, 2}, {"bias", input, compute, {width}}},
                 [](const Kernels& k, Exec& e, const Operands& o) { k.add_bias(e, o[0], o[1]); }});
        list.push_back(
            {"add_bias_backward " + shape_name({rows, width}),
             {{"dbias", update, acc, {width}}, {"dy", input, compute, {rows, width}, 0, 1, 2}},
             [](const Kernels& k, Exec& e, const Operands& o) { k.add_bias_backward(e, o[0], o[1]); }});
        list.push_back(
            {"scale_rows " + shape_name({rows, width}),
             {{"x", update, compute, {rows, width}, 0, 1, 2},
              {"factors", input, acc, {9}, 1, 0.3},
              {"positions", input, index_kind, {rows}, 9}},
             [](const Kernels& k, Exec& e, const Operands& o) { k.scale_rows(e, o[0], o[1], o[2]); }});
        for (bool backward : {false, true}) {
            list.push_back(attention_sink_case(rows, 3, width, backward));
            list.push_back(latent_keys_case(rows, {3, width, 2, width + 1}, backward));
        }
        list.push_back(attention_sink_case(rows, 3, width, false, true));
        for (bool decoupled : {false, true})
            for (bool copy : {false, true}) list.push_back(adam_case(rows * width, decoupled, copy));
        list.push_back(adam_case(rows * width, true, false, true));
        list.push_back(adam_case(rows * width, false, true, true));
    }
    // more rows than a GPU sums in one level
    list.push_back(rms_norm_backward_case(1100, 24, Plus::none));
    // rows that a GPU keeps in registers in every type, and more than it sums in groups of the least size
    list.push_back(layer_norm_case(20, 512, true));
    list.push_back(layer_norm_case(20, 512, false));
    for (Plus plus : {Plus::none, Plus::other, Plus::in_dx}) {
        list.push_back(rms_norm_case(20, 512, plus, plus == Plus::in_dx ? 1 : 0));
        list.push_back(rms_norm_backward_case(20, 512, plus, plus == Plus::other ? 1 : 0));
        list.push_back(layer_norm_backward_case(20, 512, plus != Plus::other, plus));
    }
    list.push_back(rms_norm_backward_case(16500, 8, Plus::none));
    // more tokens than a GPU has threads to sort them: many of each, and few of each, most outside the part
    list.push_back(embedding_backward_case(2500, 24, 3));
    list.push_back(embedding_backward_case(1500, 8, 300, true));
    // rows that begin one element off alignment: a GPU's threads divide their columns differently from those
    // of the weight
    for (KernelCase c : {rms_norm_backward_case(70, 256, Plus::other),
                         layer_norm_backward_case(70, 256, true, Plus::other)}) {
        c.name += " off alignment";
        for (Argument& argument : c.arguments)
            if (argument.shape.rank == 2) argument.offset = 1, argument.padding = 3;
        list.push_back(c);
    }
    for (const int64_t count : {1, 7, 4099, 20000}) {
        for (const bool nesterov : {false, true}) list.push_back(momentum_case(count, nesterov));
        for (const bool copy : {false, true}) list.push_back(descend_case(count, copy));
        list.push_back({"normalize " + std::to_string(count),
                        {{"x", update, compute, {count}}},
                        [](const Kernels& k, Exec& e, const Operands& o) {
                            k.normalize(e, o[0], &ScalarsForTests(e).get().loss_scale, 1e-7);
                        }});
        list.push_back({"scaled_sum " + std::to_string(count),
                        {{"out", update, compute, {count}}, {"b", input, acc, {count}}},
                        [](const Kernels& k, Exec& e, const Operands& o) {
                            k.scaled_sum(e, o[0], -4.775, o[0], 2.0315, o[1]);
                        }});
    }
    for (KernelCase& c : draw_cases()) list.push_back(std::move(c));
    for (KernelCase& c : expert_cases()) list.push_back(std::move(c));
    for (KernelCase& c : gate_cases()) list.push_back(std::move(c));
    for (KernelCase& c : modulation_cases()) list.push_back(std::move(c));
    for (KernelCase& c : quantization_cases()) list.push_back(std::move(c));
    for (const bool sigmoid : {false, true}) {
        list.push_back(balance_sequences_case(1, 1, 1, {}, sigmoid));
        list.push_back(balance_sequences_case(37, 6, 4, {.first = 5, .length = 12}, sigmoid));
        list.push_back(balance_sequences_case(24, 40, 3, {.first = 24, .length = 16}, sigmoid));
    }
    for (const int64_t experts : {1, 5, 64})
        list.push_back({fmt::format("balance_experts {}", experts),
                        {{"bias", update, acc, {experts}}, {"loads", input, Kind::count, {experts}, 100}},
                        [](const Kernels& k, Exec& e, const Operands& o) {
                            k.balance_experts(e, o[0], o[1], 1e-3, ScalarsForTests(e).get());
                        }});
    list.push_back({"zero",
                    {{"out", output, compute, {37, 5}, 0, 1, 2}},
                    [](const Kernels& k, Exec& e, const Operands& o) { k.zero(e, o[0]); }});
    return list;
}

std::vector<Product> step_products(const StepShape& s) {
    std::vector<Product> list;
    const auto linear = [&](int64_t outputs, int64_t inputs) {
        list.push_back({s.tokens, outputs, inputs, false, true});
        list.push_back({s.tokens, inputs, outputs, false, false});
        list.push_back({outputs, inputs, s.tokens, true, false});
    };
    linear(s.width + 2 * s.kv_heads * (s.width / s.heads), s.width);
    linear(s.width, s.width);
    linear(2 * s.feed_forward, s.width);
    linear(s.width, s.feed_forward);
    linear(s.vocabulary, s.width);
    return list;
}

std::vector<KernelCase> step_cases(const StepShape& s) {
    const int64_t tokens = s.tokens, width = s.width, head_dim = width / s.heads;
    const AttentionShape shape = {tokens / s.sequence, s.sequence, s.heads,
                                  s.kv_heads,          head_dim,   1 / std::sqrt(double(head_dim))};
    std::vector<KernelCase> list;
    for (const Product& p : step_products(s)) {
        const bool residual = p.n == width && p.transpose_b, accumulate = p.transpose_a;
        list.push_back(gemm_case(p.m, p.n, p.k, p.transpose_a, p.transpose_b,
                                 accumulate ? Residual::accumulate
                                 : residual ? Residual::other
                                            : Residual::none,
                                 accumulate));
    }
    for (bool backward : {false, true}) list.push_back(attention_case(shape, false, backward, true));
    list.push_back(rms_norm_case(tokens, width));
    list.push_back(rms_norm_backward_case(tokens, width, Plus::in_dx));
    list.push_back(layer_norm_case(tokens, width, true));
    list.push_back(layer_norm_backward_case(tokens, width, true, Plus::in_dx));
    for (RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split})
        list.push_back(rope_case(tokens, s.heads + s.kv_heads, RopeShape::whole(head_dim, layout), false,
                                 s.kv_heads * head_dim));
    list.push_back(head_norm_case(tokens, s.heads, head_dim, true, false));
    list.push_back(head_norm_backward_case(tokens, s.heads, head_dim, true, Place::of_input));
    list.push_back(row_products_case(tokens, width, false, true));
    list.push_back(divided_norm_case(tokens, width, false, 0));
    list.push_back(divided_norm_backward_case(tokens, width, Place::of_input, 0));
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
        list.push_back(glu_case(activation, tokens, s.feed_forward));
        list.push_back(glu_backward_case(activation, tokens, s.feed_forward, true));
    }
    const SequenceRows sequences = {.first = 0, .length = s.sequence};
    list.push_back(modulate_case(tokens, width, sequences, true, Plus::none, Place::own, 1));
    list.push_back(modulate_case(tokens, width, sequences, false, Plus::other, Place::own, 0));
    list.push_back(modulate_backward_case(tokens, width, sequences, true, Place::of_gradient, 1));
    list.push_back(activation_case(Activation::gelu_tanh, tokens, s.feed_forward, false));
    list.push_back(
        activation_backward_case(Activation::gelu_tanh, tokens, s.feed_forward, Place::of_gradient));
    list.push_back(squared_error_case(tokens, 64, sequences, true, true));
    list.push_back(embedding_case(tokens, width, s.vocabulary));
    list.push_back(embedding_backward_case(tokens, width, s.vocabulary));
    list.push_back(cross_entropy_case(std::min<int64_t>(tokens, 1024), s.vocabulary, true, true));
    list.push_back(adam_case(s.feed_forward * width, true, true));
    list.push_back(pair_case("cast", output, compute, acc, {tokens, width}, 0, &Kernels::cast));
    list.push_back(pair_case("add", update, acc, compute, {tokens, width}, 0, &Kernels::add));
    list.push_back(sum_parts_case(2, tokens, width));
    return list;
}

}  // namespace coeus::test
