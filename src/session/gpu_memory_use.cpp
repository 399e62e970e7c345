// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/gpu_memory_use.hpp"

#include "coeus/base/text.hpp"

#include <limits>

namespace coeus {

std::string GpuMemoryUse::text(const std::string& when) const {
    std::string facts =
        fmt::format("GPU memory {}: {} in use, {} planned (rank {}, which uses most compared with its plan)",
                    when, bytes_text(double(taken)), bytes_text(double(planned)), rank);
    if (!exceeds_plan()) return facts;
    return fmt::format(
        "{}. That is {:.0f} % more than planned: libraries (CUDA, NCCL, cuBLASLt, cuDNN) took more than was "
        "estimated, or another process uses the GPU. If memory ends in a later step, choose a smaller plan",
        facts, 100 * (double(taken) / double(planned) - 1));
}

GpuMemoryUse gpu_memory_use(const Communicator& world, int64_t planned, int64_t taken, bool alone) {
    constexpr int64_t unknown = std::numeric_limits<int64_t>::min();
    const int64_t beyond = alone ? taken - planned : unknown, most = world.all_reduce(beyond, Reduce::max);
    if (most == unknown) return {};
    const int64_t none = world.size(),
                  rank = -world.all_reduce(beyond == most ? -int64_t(world.rank()) : -none, Reduce::max);
    GpuMemoryUse use = {.rank = int(rank), .planned = planned};
    world.broadcast(Tensor(&use.planned, Dtype::i64, {1}), use.rank);
    use.taken = use.planned + most;
    return use;
}

}  // namespace coeus
