// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/chunk_choice.hpp"

#include "coeus/base/function_ref.hpp"
#include "coeus/comm/together.hpp"

#include <algorithm>

namespace coeus {

namespace {

EngineOptions with_chunks(EngineOptions options, FunctionRef<bool(const EngineOptions&)> all_fit) {
    if (options.backend == Backend::cpu) return options;
    for (const int64_t bytes : gpu_chunk_bytes) {
        options.chunk_bytes = bytes;
        if (bytes == gpu_chunk_bytes.back() || all_fit(options)) break;
    }
    return options;
}

}  // namespace

EngineOptions with_largest_chunks(const DecoderConfig& model, const EngineOptions& options,
                                  std::optional<int64_t> limit) {
    return with_chunks(options, [&](const EngineOptions& larger) {
        return !limit || std::ranges::all_of(plans_of_stages(model, larger),
                                             [&](const MemoryPlan& plan) { return plan.total() <= *limit; });
    });
}

EngineOptions with_largest_chunks(const DecoderConfig& model, const EngineOptions& options, int64_t limit,
                                  const Communicator& world) {
    return with_chunks(options, [&](const EngineOptions& larger) {
        int64_t lacking = 0;
        together(world, [&] { lacking = Engine(model, larger).plan().total() - limit; });
        return world.all_reduce(lacking, Reduce::max) <= 0;
    });
}

}  // namespace coeus
