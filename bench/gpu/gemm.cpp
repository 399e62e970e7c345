// SPDX-License-Identifier: Apache-2.0
// gpu_gemm [SIZE ...]: the matrix-multiply rate of the first GPU, for y = x W^T and dW += dy^T x, called as
// the model calls them: by the fastest of the algorithms that cuBLASLt suggests, which is kept in the user's
// cache as a run's is. If nothing can be kept there, its first suggestion is measured.
// It measures square matrices of the given sizes (default 8192) and the shapes of a Llama block (tokens 8192,
// dim 4096, ffn 14336).
// It prints one JSON object per line: type, sizes, TFLOP/s of the best and of the median run, by the GPU's
// clock.
#include "coeus/base/error.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/product_options.hpp"
#include "on_gpu.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace coeus;
using namespace coeus::bench;

namespace {

struct Product {
    int64_t rows, outputs, inputs;
    bool is_weight_gradient = false;  // into float32, added to the previous content
};

void measure(const Device& device, const Product& p, Dtype type) {
    const auto [rows, outputs, inputs, is_gradient] = p;
    const OwnedTensor x = numbers(device, type, {rows, inputs}),
                      other = numbers(device, type,
                                      {is_gradient ? rows : outputs, is_gradient ? outputs : inputs}),
                      out = numbers(device, is_gradient ? Dtype::f32 : type,
                                    {is_gradient ? outputs : rows, is_gradient ? inputs : outputs});
    const auto call = [&, is_gradient = is_gradient](const Kernels& kernels, Exec& exec) {
        if (is_gradient)
            kernels.gemm(exec, out, transposed(other), Operand(x), out);
        else
            kernels.gemm(exec, out, Operand(x), transposed(other), {});
    };
    Exec planning, exec(device);
    call(dry_kernels_of(device.backend()), planning);
    exec.workspace = Arena(planning.workspace.peak(), "kernel workspace", device.memory());
    set_product_options(exec, {.folder = user_cache("products"), .recheck = Recheck::old});
    const Kernels& kernels = kernels_of(device.backend());
    call(kernels, exec);  // the fastest algorithm is searched for
    exec.queue->finish();

    const Seconds seconds = seconds_of(exec, [&] { call(kernels, exec); });
    exec.queue->finish();
    const double flops = 2.0 * double(rows) * double(outputs) * double(inputs);
    fmt::print(
        R"({{"type": "{}", "product": "{}", "rows": {}, "outputs": {}, "inputs": {}, "tflops": {:.1f}, )"
        R"("tflops_best": {:.1f}}})"
        "\n",
        name_of(type), is_gradient ? "dW += dy^T x" : "y = x W^T", rows, outputs, inputs,
        flops / seconds.median / 1e12, flops / seconds.best / 1e12);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
    std::vector<Product> products;
    for (int i = 1; i < argc; ++i) {
        const int64_t size = std::max(1, std::atoi(argv[i]));
        products.push_back({size, size, size});
        products.push_back({size, size, size, true});
    }
    if (argc == 1)
        products = {{8192, 8192, 8192}, {8192, 28672, 4096}, {8192, 4096, 14336}, {8192, 28672, 4096, true}};
    if (visible_gpus() == 0) throw SystemError(why_no_gpu());
    const auto gpu = open_gpu(0);
    for (const Product& p : products) measure(*gpu, p, Dtype::bf16);
    measure(*gpu, products.front(), Dtype::f32);
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "gpu_gemm: {}\n", error.what());
    return 3;
}
