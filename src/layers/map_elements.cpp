// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/map_elements.hpp"

#include <algorithm>

namespace coeus {

void run_elements(Ctx& c, const char* name, int64_t count, std::span<const Tensor> tensors,
                  FunctionRef<void(int64_t first, int64_t last)> work) {
    if (!c.exec.device->is_host() || &c.k == &dry_cuda_kernels())  // refused by the plan, before any work
        throw ConfigError("the kernel {} computes only on CPUs; set device = \"cpu\"", name);
    double bytes = 0;
    for (const Tensor& tensor : tensors) {
        require(tensor.dense() && tensor.count() == count, "map_elements: dense tensors of equal counts");
        bytes += double(tensor.bytes());
    }
    const bool is_observed = !c.exec.observers.none();
    if (is_observed) {
        c.exec.observers.begin(name, double(count) * double(tensors.size()), bytes);
        c.exec.observers.operands(tensors);
    }
    constexpr int64_t range = int64_t(1) << 14;  // elements that are worth waking a thread
    const int64_t ranges = c.temp.planning() ? 0 : (count + range - 1) / range;
#pragma omp parallel for num_threads(c.exec.threads) schedule(static) if (ranges > 1)
    for (int64_t i = 0; i < ranges; ++i) work(i * range, std::min(count, (i + 1) * range));
    if (is_observed) c.exec.observers.end();
}

}  // namespace coeus
