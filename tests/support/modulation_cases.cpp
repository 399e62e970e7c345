// SPDX-License-Identifier: Apache-2.0
// What image transformers need besides the kernels of decoders: modulation by sequence, activations alone,
// and the squared error.
#include "coeus/state/step_state.hpp"
#include "support/cases.hpp"

namespace coeus::test {

namespace {

constexpr Role input = Role::input, output = Role::output, update = Role::update;
constexpr Kind acc = Kind::acc, compute = Kind::compute;

std::string text_of(int64_t rows, int64_t width, const SequenceRows& sequences) {
    return fmt::format("[{}, {}] in sequences of {}{}", rows, width, sequences.length,
                       sequences.first ? fmt::format(" from {} on", sequences.first) : "");
}
const char* text_of(Place place) {
    return place == Place::own ? "" : place == Place::of_gradient ? " in dy" : " in x";
}
const char* name_of_kind(Activation kind) {
    return kind == Activation::silu ? "silu" : "gelu_tanh";
}

// Two sequences more than the rows have: no rows belong to them.
Shape by_sequence(int64_t rows, int64_t width, const SequenceRows& sequences) {
    return {sequences.sequence_of(rows - 1) + 3, width};
}

}  // namespace

KernelCase modulate_case(int64_t rows, int64_t width, const SequenceRows& sequences, bool shifted, Plus plus,
                         Place place, double base) {
    const bool own = plus != Plus::in_dx && place == Place::own;
    const Shape all = {rows, width}, each = by_sequence(rows, width, sequences);
    KernelCase c;
    c.name = fmt::format("modulate {}{}{}{}{}", text_of(rows, width, sequences), shifted ? " shifted" : "",
                         plus == Plus::none    ? ""
                         : plus == Plus::other ? " plus"
                                               : " plus in place",
                         text_of(place), base != 0 ? fmt::format(" base {}", base) : "");
    // shift and scale are columns of a matrix with others
    c.arguments = {{"y", own ? output : update, compute, all, 0, 1, 8},
                   {"x", input, compute, all, 0, 1, 16},
                   {"shift", input, compute, each, 0, 1, 8, 8},
                   {"scale", input, compute, each, 0, 1, 2 * width},
                   {"plus", input, compute, all}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.modulate(e, o[0],
                   plus == Plus::none    ? Tensor()
                   : plus == Plus::other ? o[4]
                                         : o[0],
                   place == Place::of_input ? o[0] : o[1], shifted ? o[2] : Tensor(), o[3], sequences, base);
    };
    return c;
}

KernelCase modulate_backward_case(int64_t rows, int64_t width, const SequenceRows& sequences, bool shifted,
                                  Place place, double base) {
    const Shape all = {rows, width}, each = by_sequence(rows, width, sequences);
    KernelCase c;
    c.name =
        fmt::format("modulate_backward {}{}{}{}", text_of(rows, width, sequences), shifted ? " shifted" : "",
                    text_of(place), base != 0 ? fmt::format(" base {}", base) : "");
    c.arguments = {{"dx", place == Place::own ? output : update, compute, all, 0, 1, 8},
                   {"dscale", output, acc, each, 0, 1, 2 * width},
                   {"dy", input, compute, all, 0, 1, 16},
                   {"x", input, compute, all},
                   {"scale", input, compute, each, 0, 1, 2 * width}};
    if (shifted) c.arguments.push_back({"dshift", output, acc, each, 0, 1, 8, 8});
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.modulate_backward(e, o[0], shifted ? o[5] : Tensor(), o[1],
                            place == Place::of_gradient ? o[0] : o[2], o[3], o[4], sequences, base);
    };
    c.bound_f32 = 4e-6;  // sums over all rows of a sequence
    return c;
}

KernelCase activation_case(Activation kind, int64_t rows, int64_t width, bool in_place) {
    const Shape shape = {rows, width};
    return {
        fmt::format("activation {} [{}, {}]{}", name_of_kind(kind), rows, width, in_place ? " in place" : ""),
        {{"y", in_place ? update : output, compute, shape, 0, 3, 8}, {"x", input, compute, shape, 0, 3, 16}},
        [=](const Kernels& k, Exec& e, const Operands& o) {
            k.activation(e, o[0], in_place ? o[0] : o[1], kind);
        }};
}

KernelCase activation_backward_case(Activation kind, int64_t rows, int64_t width, Place place) {
    const Shape shape = {rows, width};
    return {fmt::format("activation_backward {} [{}, {}]{}", name_of_kind(kind), rows, width, text_of(place)),
            {{"dx", place == Place::own ? output : update, compute, shape, 0, 3},
             {"dy", input, compute, shape, 0, 1, 8},
             {"x", input, compute, shape, 0, 3}},
            [=](const Kernels& k, Exec& e, const Operands& o) {
                k.activation_backward(e, o[0], place == Place::of_gradient ? o[0] : o[1],
                                      place == Place::of_input ? o[0] : o[2], kind);
            }};
}

KernelCase squared_error_case(int64_t rows, int64_t width, const SequenceRows& sequences, bool gradient,
                              bool in_place) {
    const Shape all = {rows, width};
    const int64_t number = sequences.sequence_of(rows - 1) + 1;
    KernelCase c;
    c.name = fmt::format("squared_error {}{}", text_of(rows, width, sequences),
                         in_place   ? " in place"
                         : gradient ? ""
                                    : " without gradient");
    c.arguments = {{"losses", output, acc, {rows}},
                   {"prediction", in_place ? update : input, compute, all, 0, 1, 8},
                   {"target", input, acc, all, 0, 1, 4},
                   {"weights", input, acc, {number}, 1, 0.3}};
    if (gradient && !in_place) c.arguments.push_back({"dprediction", output, compute, all, 0, 1, 16});
    c.prepare = [=](const Kernels&, Exec&, const Operands& o) {  // fillers
        for (int64_t s = 2; s < number; s += 3) set_element(o[3], s, 0);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        StepState state(*e.device);
        StepScalars scalars;
        scalars.loss_scale = 1.0 / 16;
        state.stage(scalars);
        state.bring(e);
        k.squared_error(e, o[0],
                        !gradient  ? Tensor()
                        : in_place ? o[1]
                                   : o[4],
                        o[1], o[2], o[3], sequences, state.scalars());
        e.queue->finish();  // before the scalars' memory is given back
    };
    return c;
}

std::vector<KernelCase> modulation_cases() {
    std::vector<KernelCase> list;
    struct Sizes {
        int64_t rows, width;
        SequenceRows sequences;
    };
    // also sequences in several blocks of sums, and sequences before the first row
    for (const auto& [rows, width, sequences] : {Sizes{1, 1, {}},
                                                 {1, 7, {.first = 5, .length = 3}},
                                                 {5, 16, {.first = 0, .length = 2}},
                                                 {131, 33, {.first = 31, .length = 100}},
                                                 {64, 256, {.first = 0, .length = 64}},
                                                 {150, 24, {.first = 260, .length = 130}}}) {
        for (const bool shifted : {false, true}) {
            for (const Plus plus : {Plus::none, Plus::other, Plus::in_dx})
                list.push_back(
                    modulate_case(rows, width, sequences, shifted, plus, Place::own, shifted ? 1 : 0));
            list.push_back(modulate_case(rows, width, sequences, shifted, Plus::other, Place::of_input,
                                         shifted ? 1 : 0));
            for (const Place place : {Place::own, Place::of_gradient})
                list.push_back(
                    modulate_backward_case(rows, width, sequences, shifted, place, shifted ? 1 : 0));
        }
        for (const Activation kind : {Activation::silu, Activation::gelu_tanh}) {
            for (const bool in_place : {false, true})
                list.push_back(activation_case(kind, rows, width, in_place));
            for (const Place place : {Place::own, Place::of_gradient, Place::of_input})
                list.push_back(activation_backward_case(kind, rows, width, place));
        }
        list.push_back(squared_error_case(rows, width, sequences, false, false));
        list.push_back(squared_error_case(rows, width, sequences, true, false));
        list.push_back(squared_error_case(rows, width, sequences, true, true));
    }
    return list;
}

}  // namespace coeus::test
