// SPDX-License-Identifier: Apache-2.0
// Norms of rows and of heads, and their gradients.
#include "support/cases.hpp"

#include <initializer_list>
#include <string>

namespace coeus::test {

namespace {

constexpr Role input = Role::input, output = Role::output, update = Role::update;
constexpr Kind acc = Kind::acc, compute = Kind::compute;

std::string shape_name(std::initializer_list<int64_t> extents) {
    return Shape(extents).text();
}

}  // namespace

KernelCase rms_norm_case(int64_t rows, int64_t width) {
    return {
        "rms_norm " + shape_name({rows, width}),
        {{"y", output, compute, {rows, width}},
         {"rstd", output, acc, {rows}},
         {"x", input, compute, {rows, width}},
         {"weight", input, compute, {width}, 1, 0.2}},
        [](const Kernels& k, Exec& e, const Operands& o) { k.rms_norm(e, o[0], o[1], o[2], o[3], 1e-5); }};
}

KernelCase rms_norm_backward_case(int64_t rows, int64_t width, Plus plus) {
    KernelCase c;
    c.name = "rms_norm_backward " + shape_name({rows, width}) +
             (plus == Plus::none    ? ""
              : plus == Plus::other ? " plus"
                                    : " plus in place");
    c.arguments = {{"dx", plus == Plus::in_dx ? update : output, compute, {rows, width}},
                   {"dweight", update, acc, {width}},
                   {"dy", input, compute, {rows, width}},
                   {"plus", input, compute, {rows, width}},
                   {"x", input, compute, {rows, width}},
                   {"rstd", input, acc, {rows}},
                   {"weight", input, compute, {width}, 1, 0.2},
                   {"y", input, compute, {rows, width}}};
    c.prepare = [](const Kernels& k, Exec& e, const Operands& o) {
        k.rms_norm(e, o[7], o[5], o[4], o[6], 1e-5);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.rms_norm_backward(e, o[0], o[1], o[2],
                            plus == Plus::none    ? Tensor()
                            : plus == Plus::other ? o[3]
                                                  : o[0],
                            o[4], o[5], o[6]);
    };
    return c;
}

KernelCase layer_norm_case(int64_t rows, int64_t width, bool weighted) {
    return {"layer_norm " + shape_name({rows, width}) + (weighted ? "" : " without weight"),
            {{"y", output, compute, {rows, width}},
             {"mean", output, acc, {rows}},
             {"rstd", output, acc, {rows}},
             {"x", input, compute, {rows, width}, 0.5},
             {"weight", input, compute, {width}, 1, 0.2}},
            [=](const Kernels& k, Exec& e, const Operands& o) {
                k.layer_norm(e, o[0], o[1], o[2], o[3], weighted ? o[4] : Tensor(), 1e-5);
            }};
}

KernelCase layer_norm_backward_case(int64_t rows, int64_t width, bool weighted, Plus plus) {
    KernelCase c;
    c.name = "layer_norm_backward " + shape_name({rows, width}) + (weighted ? "" : " without weight") +
             (plus == Plus::none    ? ""
              : plus == Plus::other ? " plus"
                                    : " plus in place");
    c.arguments = {{"dx", plus == Plus::in_dx ? update : output, compute, {rows, width}},
                   {"dweight", update, acc, {width}},
                   {"dy", input, compute, {rows, width}},
                   {"plus", input, compute, {rows, width}},
                   {"x", input, compute, {rows, width}, 0.5},
                   {"mean", input, acc, {rows}},
                   {"rstd", input, acc, {rows}},
                   {"weight", input, compute, {width}, 1, 0.2},
                   {"y", input, compute, {rows, width}}};
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.layer_norm(e, o[8], o[5], o[6], o[4], weighted ? o[7] : Tensor(), 1e-5);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.layer_norm_backward(e, o[0], weighted ? o[1] : Tensor(), o[2],
                              plus == Plus::none    ? Tensor()
                              : plus == Plus::other ? o[3]
                                                    : o[0],
                              o[4], o[5], o[6], weighted ? o[7] : Tensor());
    };
    return c;
}

KernelCase head_norm_case(int64_t tokens, int64_t heads, int64_t head_dim, bool weighted, bool in_place) {
    const Shape shape = {tokens, heads * head_dim};
    return {fmt::format("head_norm {}x{} heads of {}{}{}", tokens, heads, head_dim,
                        weighted ? "" : " without weight", in_place ? " in place" : ""),
            {{"y", in_place ? update : output, compute, shape, 0, 1, 3},
             {"x", input, compute, shape, 0, 1, 2 * head_dim},
             {"weight", input, compute, {head_dim}, 1, 0.2}},
            [=](const Kernels& k, Exec& e, const Operands& o) {
                k.head_norm(e, o[0], in_place ? o[0] : o[1], weighted ? o[2] : Tensor(), head_dim, 1e-2);
            }};
}

KernelCase head_norm_backward_case(int64_t tokens, int64_t heads, int64_t head_dim, bool weighted,
                                   Place place) {
    const Shape shape = {tokens, heads * head_dim};
    KernelCase c;
    c.name = fmt::format("head_norm_backward {}x{} heads of {}{}{}", tokens, heads, head_dim,
                         weighted ? "" : " without weight",
                         place == Place::own           ? ""
                         : place == Place::of_gradient ? " in dy"
                                                       : " in x");
    c.arguments = {{"dx", place == Place::own ? output : update, compute, shape, 0, 1, 4},
                   {"dweight", update, acc, {head_dim}},
                   {"dy", input, compute, shape},
                   {"x", input, compute, shape, 0, 1, 2 * head_dim},
                   {"weight", input, compute, {head_dim}, 1, 0.2}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.head_norm_backward(e, o[0], weighted ? o[1] : Tensor(), place == Place::of_gradient ? o[0] : o[2],
                             place == Place::of_input ? o[0] : o[3], weighted ? o[4] : Tensor(), head_dim,
                             1e-2);
    };
    return c;
}

}  // namespace coeus::test
