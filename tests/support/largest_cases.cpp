// SPDX-License-Identifier: Apache-2.0
// The cases of kernels that find the largest magnitudes of what they write.
#include "support/cases.hpp"

#include <cstring>
#include <limits>
#include <utility>

namespace coeus::test {

namespace {

LargestCase largest_case(const KernelCase& plain, int64_t parts, size_t result = 0) {
    KernelCase c = plain;
    c.name += " with its largest magnitude";
    // what is there is sometimes larger
    constexpr double bits_of_4 = 0x40800000;
    c.arguments.push_back({"bits", Role::update, Kind::index, {parts}, bits_of_4});
    c.call = [=, call = plain.call](const Kernels& k, Exec& e, const Operands& o) {
        Operands given;
        given.tensors = o.tensors;
        given.tensors[result].largest = o.tensors.back().data;
        given.tensors[result].largest_cols = o[result].cols() / parts;
        call(k, e, given);
    };
    return {std::move(c), plain, parts, result};
}

}  // namespace

KernelCase with_number(KernelCase c, size_t operand, double number) {
    c.name += fmt::format(" with {}", number);
    c.prepare = [=, prepare = c.prepare](const Kernels& k, Exec& e, const Operands& o) {
        if (prepare) prepare(k, e, o);
        set_element(o[operand], o[operand].count() / 2, number);
    };
    return c;
}

KernelCase with_wrong_columns(const LargestCase& c) {
    KernelCase wrong = c.with_largest;
    wrong.call = [c](const Kernels& k, Exec& e, const Operands& o) {
        Operands given;
        given.tensors = o.tensors;
        given.tensors[c.result].largest = o.tensors.back().data;
        given.tensors[c.result].largest_cols = o[c.result].cols() / c.parts + 1;
        c.plain.call(k, e, given);
    };
    return wrong;
}

std::vector<LargestCase> largest_cases() {
    constexpr double infinity = std::numeric_limits<double>::infinity(),
                     nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<LargestCase> list;
    for (const auto& [rows, width] :
         {std::pair<int64_t, int64_t>{1, 1}, {5, 16}, {131, 33}, {64, 256}, {5, 512}, {3, 8200}})
        for (const double number : {1.0, 3e4, infinity, nan}) {
            list.push_back(largest_case(with_number(rms_norm_case(rows, width), 2, number), 1));
            list.push_back(
                largest_case(with_number(rms_norm_case(rows, width, Plus::other, 1), 2, number), 1));
            list.push_back(largest_case(with_number(layer_norm_case(rows, width, true), 3, number), 1));
            list.push_back(largest_case(with_number(layer_norm_case(rows, width, false), 3, number), 1));
            for (const Plus plus : {Plus::none, Plus::in_dx})
                list.push_back(largest_case(
                    with_number(rms_norm_backward_case(rows, width, plus, plus == Plus::none ? 0 : 1), 2,
                                number),
                    1));
            list.push_back(largest_case(
                with_number(layer_norm_backward_case(rows, width, true, Plus::in_dx), 2, number), 1));
            for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
                list.push_back(largest_case(with_number(glu_case(activation, rows, width), 1, number), 1));
                for (const bool in_place : {false, true})
                    list.push_back(
                        largest_case(with_number(glu_backward_case(activation, rows, width, in_place),
                                                 in_place ? 0 : 1, number),
                                     2));
            }
        }
    for (const int64_t count : {1, 7, 20000})
        for (const bool copy : {false, true})
            for (const double number : {1.0, 3e4, infinity, nan}) {
                list.push_back(largest_case(with_number(adam_case(count, true, copy), 0, number), 1,
                                            copy ? size_t(4) : 0));
                list.push_back(
                    largest_case(with_number(descend_case(count, copy), 0, number), 1, copy ? size_t(2) : 0));
            }
    return list;
}

std::string wrong_largest(const LargestCase& c, const std::function<Operands(const KernelCase&)>& run,
                          const Operands& before) {
    const Operands found = run(c.with_largest), plain = run(c.plain);
    for (size_t i = 0; i < plain.storage.size(); ++i)
        if (c.plain.arguments[i].role != Role::input &&
            std::memcmp(plain.storage[i].view.data, found.storage[i].view.data,
                        size_t(plain.storage[i].view.bytes())) != 0)
            return c.plain.arguments[i].name + " is another one";
    const Tensor y = found[c.result], bits = found.tensors.back(), expected = before.tensors.back();
    const int64_t width = y.cols() / c.parts;
    Exec exec;
    for (int64_t part = 0; part < c.parts; ++part) {
        cpu_kernels().largest_magnitudes(exec, expected.slice_rows(part, 1),
                                         c.parts > 1 ? y.slice_cols(part * width, width) : y,
                                         ScaleGroups::one, {});
        if (element(expected, part) != element(bits, part))
            return fmt::format("part {} has {}, and not {}", part, element(bits, part),
                               element(expected, part));
    }
    return "";
}

}  // namespace coeus::test
