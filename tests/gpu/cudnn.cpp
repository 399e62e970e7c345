// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN, if there is one. The emulated GPU has a stand-in, which computes what our graph
// describes.
#include "coeus/kernels/cudnn.hpp"

#include "gpu/gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

bool has_cudnn() {
    Exec exec(the_gpu());
    try {
        use_cudnn(exec);
        return true;
    } catch (const ConfigError& error) {
        skip(error.what());
        return false;
    }
}

KernelCase by_cudnn(const KernelCase& c) {
    KernelCase with = c;
    with.call = [call = c.call](const Kernels& kernels, Exec& exec, const Operands& operands) {
        if (!exec.device->is_host()) use_cudnn(exec);  // not for a dry run
        call(kernels, exec, operands);
    };
    return with;
}

}  // namespace

TEST_CASE("GPU kernels: attention by cuDNN agrees with double, and its lse serves our backward") {
    choose_cudnn();
    if (!has_cudnn()) return;
    // for cuDNN: batches, shared heads, odd lengths, columns of one matrix; not for cuDNN: documents, odd
    // widths
    for (const KernelCase& c : {attention_case({1, 64, 2, 2, 64, 0.125}, false, false),
                                attention_case({2, 77, 6, 3, 80, 0.11}, false, false),
                                attention_case({3, 33, 4, 1, 8, 0.35}, false, false, true),
                                attention_case({1, 40, 2, 1, 128, 0.09}, false, false),
                                attention_case({2, 50, 2, 1, 16, 0.25}, true, false),
                                attention_case({1, 30, 2, 1, 20, 0.2}, false, false)}) {
        const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16);
        const Operands result = run_case_on(the_gpu(), by_cudnn(c), Dtype::bf16, Dtype::bf16);
        for (size_t i = 0; i < c.arguments.size(); ++i)
            if (c.arguments[i].role != Role::input) {
                INFO(c.name << ", " << c.arguments[i].name);
                CHECK(normalised_error(values_of(result[i]), values_of(truth[i])) <= c.bound_bf16);
            }
    }
}
