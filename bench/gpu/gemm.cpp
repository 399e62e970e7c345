// SPDX-License-Identifier: Apache-2.0
// gpu_gemm [SIZE ...]: the matrix-multiply rate of the first GPU, for y = x W^T and dW += dy^T x, called as
// the model calls them: by the fastest of the algorithms that cuBLASLt suggests, which is kept in the user's
// cache as a run's is. If nothing can be kept there, its first suggestion is measured.
// It measures square matrices of the given sizes (default 8192) and the shapes of a Llama block (tokens 8192,
// dim 4096, ffn 14336).
// It prints one JSON object per line: type, sizes, TFLOP/s of the best and of the median run.
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/types.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/product_options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace coeus;

namespace {

struct Product {
    int64_t rows, outputs, inputs;
    bool is_weight_gradient = false;  // into float32, added to the previous content
};

// Random bits in a narrow range: on many GPUs, products of zeros run faster than products of other numbers.
OwnedTensor random_matrix(const Device& device, Dtype type, int64_t rows, int64_t cols) {
    const OwnedTensor host(type, {rows, cols});
    uint32_t bits = 12345;
    for (int64_t i = 0; i < host.view.count(); ++i) {
        bits = bits * 1664525 + 1013904223;
        set_element(host, i, double(bits >> 16) / 32768 - 1);
    }
    OwnedTensor there(type, {rows, cols}, "matrix", device.memory());
    device.copy(there.view.data, host.view.data, host.view.bytes());
    return there;
}

void measure(const Device& device, const Product& p, Dtype type) {
    const auto [rows, outputs, inputs, is_gradient] = p;
    const OwnedTensor x = random_matrix(device, type, rows, inputs),
                      other = is_gradient ? random_matrix(device, type, rows, outputs)
                                          : random_matrix(device, type, outputs, inputs),
                      out(is_gradient ? Dtype::f32 : type,
                          is_gradient ? Shape{outputs, inputs} : Shape{rows, outputs}, "product",
                          device.memory());
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

    constexpr int runs = 7, calls = 5;
    std::vector<double> seconds;
    for (int run = 0; run < runs; ++run) {
        const Timer timer;
        for (int i = 0; i < calls; ++i) call(kernels, exec);
        exec.queue->finish();
        seconds.push_back(timer.seconds() / calls);
    }
    std::sort(seconds.begin(), seconds.end());
    const double flops = 2.0 * double(rows) * double(outputs) * double(inputs);
    fmt::print(
        R"({{"type": "{}", "product": "{}", "rows": {}, "outputs": {}, "inputs": {}, "tflops": {:.1f}, )"
        R"("tflops_best": {:.1f}}})"
        "\n",
        name_of(type), is_gradient ? "dW += dy^T x" : "y = x W^T", rows, outputs, inputs,
        flops / seconds[runs / 2] / 1e12, flops / seconds[0] / 1e12);
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
