// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/chunk_choice.hpp"

#include "coeus/base/function_ref.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace coeus {

namespace {

// The largest first.
std::vector<int64_t> sizes_to_try(std::optional<int64_t> of_checkpoint) {
    std::vector<int64_t> sizes;
    if (of_checkpoint) sizes.push_back(*of_checkpoint);
    for (const int64_t bytes : gpu_chunk_bytes)
        if (bytes < of_checkpoint.value_or(bytes + 1)) sizes.push_back(bytes);
    return sizes;
}

EngineOptions with_chunks(EngineOptions options, std::optional<int64_t> of_checkpoint,
                          FunctionRef<bool(const EngineOptions&)> all_fit) {
    if (options.machine.backend == Backend::cpu || options.chunk_bytes) return options;
    const std::vector<int64_t> sizes = sizes_to_try(of_checkpoint);
    for (const int64_t bytes : sizes) {
        options.chunk_bytes = bytes;
        if (bytes == sizes.back() || all_fit(options)) break;
    }
    return options;
}

}  // namespace

EngineOptions with_largest_chunks(const ModelConfig& model, const EngineOptions& options,
                                  std::optional<int64_t> limit, std::optional<int64_t> of_checkpoint) {
    return with_chunks(options, of_checkpoint, [&](const EngineOptions& larger) {
        return !limit || std::ranges::all_of(plans_of_stages(model, larger),
                                             [&](const MemoryPlan& plan) { return plan.total() <= *limit; });
    });
}

EngineOptions with_largest_chunks(const ModelConfig& model, const EngineOptions& options, int64_t limit,
                                  const Communicator& world, std::optional<int64_t> of_checkpoint) {
    return with_chunks(options, of_checkpoint, [&](const EngineOptions& larger) {
        int64_t lacking = 0;
        together(world, [&] { lacking = Engine(model, larger).plan().total() - limit; });
        return world.all_reduce(lacking, Reduce::max) <= 0;
    });
}

std::string notice_on_chunks(const Config& config, const EngineOptions& options,
                             std::optional<int64_t> of_checkpoint) {
    const int64_t bytes = options.chunk_bytes.value(), largest = gpu_chunk_bytes.front();
    if (options.machine.backend == Backend::cpu || config.kernels.logits_chunk_mib) return "";
    const std::string notice = fmt::format("logits are computed in chunks of {}", bytes_text(double(bytes)));
    if (of_checkpoint && bytes < *of_checkpoint)
        return fmt::format(
            "{}; with the {} of the checkpoint, a rank would not fit into its GPU. The last bits differ from "
            "those of a run that was not interrupted",
            notice, bytes_text(double(*of_checkpoint)));
    if (bytes >= largest) return "";
    if (of_checkpoint) return notice + ", as in the checkpoint (kernels.logits_chunk_mib)";
    return fmt::format("{}; with {}, a rank would not fit into its GPU", notice, bytes_text(double(largest)));
}

}  // namespace coeus
