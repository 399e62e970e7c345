// SPDX-License-Identifier: Apache-2.0
// Kernels that choose among algorithms, at a shape whose first call is captured in a graph. Anything that a
// capture does not allow (timing candidates, loading a kernel) is left to later calls, and the result is the
// same.
#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/product_options.hpp"
#include "gpu/gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

// Captures each call in its own graph, after `begin`.
KernelCase recorded(const KernelCase& c, const std::function<void(Exec&)>& begin) {
    KernelCase with = c;
    with.call = [call = c.call, begin](const Kernels& kernels, Exec& exec, const Operands& operands) {
        if (exec.is_synchronous()) return call(kernels, exec, operands);  // on the host, or in a dry run
        begin(exec);
        exec.queue->finish();
        exec.queue->begin_recording();
        call(kernels, exec, operands);
        const std::unique_ptr<Graph> graph = exec.queue->end_recording();
        exec.queue->give(*graph);
        exec.queue->finish();
    };
    return with;
}

void check_agrees(const KernelCase& c, const KernelCase& on_gpu, Dtype type) {
    const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, type),
                   result = run_case_on(the_gpu(), on_gpu, type, type);
    for (size_t i = 0; i < c.arguments.size(); ++i) {
        if (c.arguments[i].role == Role::input) continue;
        INFO(c.name << " in " << name_of(type) << ", " << c.arguments[i].name);
        CHECK(normalised_error(values_of(result[i]), values_of(truth[i])) <=
              (type == Dtype::f32 ? c.bound_f32 : c.bound_bf16));
    }
}

}  // namespace

TEST_CASE("GPU kernels: a product whose first call is captured searches for no algorithm, and stores none") {
    const TemporaryFolder folder;
    for (const KernelCase& c : test_cases())
        if (c.name.starts_with("gemm"))
            for (const Dtype type : {Dtype::f32, Dtype::bf16})
                check_agrees(
                    c, recorded(c, [&](Exec& exec) { set_product_options(exec, {.folder = folder.path()}); }),
                    type);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
        CHECK_FALSE(entry.is_regular_file());
}

TEST_CASE("GPU kernels: attention whose first call is captured uses our own kernel, not cuDNN's") {
    choose_cudnn();
    try {
        Exec exec(the_gpu());
        use_cudnn(exec);
    } catch (const ConfigError& error) {
        return skip(error.what());
    }
    for (const bool backward : {false, true}) {
        const KernelCase c = attention_case({1, 64, 2, 2, 64, 0.125}, false, backward);
        KernelCase on_gpu = recorded(c, [](Exec& exec) { use_cudnn(exec); });
        on_gpu.call = [call = on_gpu.call](const Kernels& kernels, Exec& exec, const Operands& operands) {
            exec.cudnn_bytes = most_cudnn_bytes;
            call(kernels, exec, operands);
        };
        check_agrees(c, on_gpu, Dtype::bf16);
    }
}
