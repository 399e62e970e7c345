// SPDX-License-Identifier: Apache-2.0
// The cases of kernels that round rows to 8 bits while they write them.
#include "support/cases.hpp"

#include <limits>
#include <utility>

namespace coeus::test {

RoundedCase rounded_case(const KernelCase& plain, bool values) {
    const Shape shape = plain.arguments.front().shape;
    RoundedCase both = {plain, plain};
    for (KernelCase* c : {&both.fused, &both.separate}) {
        c->name += values ? ", rounded to values" : ", rounded";
        c->arguments.push_back({"rounded", Role::output, Kind::code, {shape.rows(), shape.cols()}});
        if (values)
            c->arguments.back().shape = {shape.rows(), 2 * shape.cols()};  // the bytes of bfloat16
        else
            c->arguments.push_back({"scales", Role::output, Kind::scale, {shape.rows()}});
    }
    const size_t rounded = plain.arguments.size();
    const auto with_room = [=](const Operands& o) {
        Tensor y = o[0];
        y.rounded = o[rounded].data;
        if (!values) y.rounded_scale = o[rounded + 1].data;
        return y;
    };
    both.fused.call = [=, call = plain.call](const Kernels& k, Exec& e, const Operands& o) {
        Operands given;
        given.tensors = o.tensors;
        given.tensors[0] = with_room(o);
        call(k, e, given);
    };
    both.separate.call = [=, call = plain.call](const Kernels& k, Exec& e, const Operands& o) {
        call(k, e, o);
        if (values)
            k.quantize_values(e, rounded_rows(with_room(o)), o[0], {}, rows_form);
        else
            k.quantize(e, rounded_rows(with_room(o)), o[0], {}, rows_form.rule, {});
    };
    return both;
}

std::vector<RoundedCase> rounded_cases(bool values) {
    constexpr double infinity = std::numeric_limits<double>::infinity(),
                     nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<RoundedCase> list;
    const auto add = [&](const KernelCase& plain, size_t input, double number) {
        list.push_back(rounded_case(with_number(plain, input, number), values));
    };
    for (const auto& [rows, width] :
         {std::pair<int64_t, int64_t>{1, 1}, {5, 16}, {131, 33}, {64, 256}, {9, 512}, {3, 8200}})
        for (const double number : {1.0, 3e4, infinity, nan}) {
            add(rms_norm_case(rows, width), 2, number);
            add(rms_norm_case(rows, width, Plus::other, 1), 2, number);
            add(layer_norm_case(rows, width, true), 3, number);
            add(layer_norm_case(rows, width, false), 3, number);
            add(glu_case(Activation::silu, rows, width), 1, number);
            add(glu_case(Activation::gelu_tanh, rows, width), 1, number);
        }
    return list;
}

}  // namespace coeus::test
