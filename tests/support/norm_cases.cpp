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

const char* name_of(Plus plus) {
    return plus == Plus::none ? "" : plus == Plus::other ? " plus" : " plus in place";
}
std::string name_of_offset(double offset) {
    return offset != 0 ? fmt::format(" offset {}", offset) : "";
}
// `result`: the operand that is written.
Tensor residual(Plus plus, const Tensor& result, const Tensor& other) {
    return plus == Plus::none ? Tensor() : plus == Plus::other ? other : result;
}

}  // namespace

KernelCase rms_norm_case(int64_t rows, int64_t width, Plus plus, double offset) {
    KernelCase c = {"rms_norm " + shape_name({rows, width}) + name_of(plus) + name_of_offset(offset),
                    {{"y", plus == Plus::in_dx ? update : output, compute, {rows, width}},
                     {"rstd", output, acc, {rows}},
                     {"x", input, compute, {rows, width}},
                     {"weight", input, compute, {width}, 1 - offset, 0.2}},
                    [=](const Kernels& k, Exec& e, const Operands& o) {
                        const Tensor added = residual(plus, o[0], plus == Plus::other ? o[4] : Tensor());
                        k.rms_norm(e, o[0], o[1], added, o[2], o[3], {1e-5, offset});
                    }};
    if (plus == Plus::other) c.arguments.push_back({"plus", input, compute, {rows, width}});
    return c;
}

KernelCase rms_norm_backward_case(int64_t rows, int64_t width, Plus plus, double offset) {
    KernelCase c;
    c.name = "rms_norm_backward " + shape_name({rows, width}) + name_of(plus) + name_of_offset(offset);
    c.arguments = {{"dx", plus == Plus::in_dx ? update : output, compute, {rows, width}},
                   {"dweight", update, acc, {width}},
                   {"dy", input, compute, {rows, width}},
                   {"plus", input, compute, {rows, width}},
                   {"x", input, compute, {rows, width}},
                   {"rstd", input, acc, {rows}},
                   {"weight", input, compute, {width}, 1 - offset, 0.2},
                   {"y", input, compute, {rows, width}}};
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.rms_norm(e, o[7], o[5], {}, o[4], o[6], {1e-5, offset});
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.rms_norm_backward(e, o[0], o[1], o[2], residual(plus, o[0], o[3]), o[4], o[5], o[6],
                            {1e-5, offset});
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
             name_of(plus);
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
        k.layer_norm_backward(e, o[0], weighted ? o[1] : Tensor(), o[2], residual(plus, o[0], o[3]), o[4],
                              o[5], o[6], weighted ? o[7] : Tensor());
    };
    return c;
}

KernelCase head_norm_case(int64_t tokens, int64_t heads, int64_t head_dim, bool weighted, bool in_place,
                          double offset) {
    const Shape shape = {tokens, heads * head_dim};
    return {
        fmt::format("head_norm {}x{} heads of {}{}{}{}", tokens, heads, head_dim,
                    weighted ? "" : " without weight", in_place ? " in place" : "", name_of_offset(offset)),
        {{"y", in_place ? update : output, compute, shape, 0, 1, 3},
         {"x", input, compute, shape, 0, 1, 2 * head_dim},
         {"weight", input, compute, {head_dim}, 1 - offset, 0.2}},
        [=](const Kernels& k, Exec& e, const Operands& o) {
            k.head_norm(e, o[0], in_place ? o[0] : o[1], weighted ? o[2] : Tensor(), head_dim,
                        {1e-2, offset});
        }};
}

KernelCase head_norm_backward_case(int64_t tokens, int64_t heads, int64_t head_dim, bool weighted,
                                   Place place, double offset) {
    const Shape shape = {tokens, heads * head_dim};
    KernelCase c;
    c.name = fmt::format("head_norm_backward {}x{} heads of {}{}{}{}", tokens, heads, head_dim,
                         weighted ? "" : " without weight",
                         place == Place::own           ? ""
                         : place == Place::of_gradient ? " in dy"
                                                       : " in x",
                         name_of_offset(offset));
    c.arguments = {{"dx", place == Place::own ? output : update, compute, shape, 0, 1, 4},
                   {"dweight", update, acc, {head_dim}},
                   {"dy", input, compute, shape},
                   {"x", input, compute, shape, 0, 1, 2 * head_dim},
                   {"weight", input, compute, {head_dim}, 1 - offset, 0.2}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.head_norm_backward(e, o[0], weighted ? o[1] : Tensor(), place == Place::of_gradient ? o[0] : o[2],
                             place == Place::of_input ? o[0] : o[3], weighted ? o[4] : Tensor(), head_dim,
                             {1e-2, offset});
    };
    return c;
}

KernelCase row_products_case(int64_t rows, int64_t width, bool weighted, bool squares) {
    const double offset = weighted ? 1 : 0;
    return {fmt::format("row_products {}{}{}", shape_name({rows, width}), weighted ? " weighted" : "",
                        squares ? " of one operand" : ""),
            {{"sums", output, acc, {rows}},
             {"a", input, compute, {rows, width}, 1, 1, 8},
             {"b", input, compute, {rows, width}, 1, 1, width},
             {"weight", input, compute, {width}, 0, 0.2}},
            [=](const Kernels& k, Exec& e, const Operands& o) {
                k.row_products(e, o[0], o[1], squares ? o[1] : o[2], weighted ? o[3] : Tensor(), offset);
            }};
}

namespace {

// The sums over the other half of the columns are equal to those of this one.
void add_other_half(const Kernels& k, Exec& e, Tensor sums) {
    k.add(e, sums, sums);
}
constexpr int64_t all_columns(int64_t width) {
    return 2 * width;
}

}  // namespace

KernelCase divided_norm_case(int64_t rows, int64_t width, bool in_place, double offset) {
    KernelCase c;
    c.name =
        "divided_norm " + shape_name({rows, width}) + (in_place ? " in place" : "") + name_of_offset(offset);
    c.arguments = {{"y", in_place ? update : output, compute, {rows, width}, 0, 1, 8},
                   {"x", input, compute, {rows, width}, 0, 1, width},
                   {"squares", input, acc, {rows}},
                   {"weight", input, compute, {width}, 1 - offset, 0.2}};
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        const Tensor x = in_place ? o[0] : o[1];
        k.row_products(e, o[2], x, x, {}, 0);
        add_other_half(k, e, o[2]);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.divided_norm(e, o[0], in_place ? o[0] : o[1], o[2], o[3], all_columns(width), {1e-2, offset});
    };
    return c;
}

KernelCase divided_norm_backward_case(int64_t rows, int64_t width, Place place, double offset) {
    KernelCase c;
    c.name = fmt::format("divided_norm_backward {}{}{}", shape_name({rows, width}),
                         place == Place::own           ? ""
                         : place == Place::of_gradient ? " in dy"
                                                       : " in x",
                         name_of_offset(offset));
    c.arguments = {{"dx", place == Place::own ? output : update, compute, {rows, width}, 0, 1, 8},
                   {"dweight", update, acc, {width}},
                   {"dy", input, compute, {rows, width}},
                   {"x", input, compute, {rows, width}, 0, 1, 2 * width},
                   {"squares", input, acc, {rows}},
                   {"products", input, acc, {rows}},
                   {"weight", input, compute, {width}, 1 - offset, 0.2}};
    const auto dy = [=](const Operands& o) { return place == Place::of_gradient ? o[0] : o[2]; };
    const auto x = [=](const Operands& o) { return place == Place::of_input ? o[0] : o[3]; };
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.row_products(e, o[4], x(o), x(o), {}, 0);
        k.row_products(e, o[5], dy(o), x(o), o[6], offset);
        add_other_half(k, e, o[4]);
        add_other_half(k, e, o[5]);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.divided_norm_backward(e, o[0], o[1], dy(o), x(o), o[4], o[5], o[6], all_columns(width),
                                {1e-2, offset});
    };
    return c;
}

}  // namespace coeus::test
