// SPDX-License-Identifier: Apache-2.0
// The activation of rows that are not grouped by expert: that of a shared expert.
#include "support/cases.hpp"

namespace coeus::test {

std::vector<KernelCase> gate_cases() {
    constexpr Role input = Role::input, output = Role::output;
    constexpr Kind acc = Kind::acc, compute = Kind::compute;
    std::vector<KernelCase> list;
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {5, 16}, {67, 33}})
        for (const Gate& gate : {Gate{}, Gate{.activation = Activation::gelu_tanh}}) {
            const std::string of =
                fmt::format("{} of all rows {}x{}", gate == Gate{} ? "" : " gelu", rows, width);
            list.push_back({"gate" + of,
                            {{"y", output, compute, {rows, width}, 0, 1, 3},
                             {"gate_up", input, compute, {rows, 2 * width}, 0, 1, 1},
                             {"scale", input, acc, {rows}}},
                            [=](const Kernels& k, Exec& e, const Operands& o) {
                                k.gate(e, o[0], o[1], o[2], {}, gate);
                            }});
            list.push_back({"gate_backward" + of,
                            {{"dgate_up", Role::update, compute, {rows, 2 * width}, 0, 1, 1},
                             {"dscale", output, acc, {rows}},
                             {"dy", input, compute, {rows, width}, 0, 1, 3},
                             {"scale", input, acc, {rows}}},
                            [=](const Kernels& k, Exec& e, const Operands& o) {
                                k.gate_backward(e, o[0], o[1], {}, o[2], o[0], o[3], {}, gate);
                            }});
        }
    return list;
}

}  // namespace coeus::test
