// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/operand_choice.hpp"

#include "coeus/comm/together.hpp"

#include <algorithm>

namespace coeus {

namespace {

// Weights that are gathered are not kept, nor are those that are in 8 bits already.
bool gains_from_kept_operands(const EngineOptions& options) {
    const Precision& precision = options.types.precision;
    return options.machine.backend == Backend::cuda && precision.linear != Recipe::none &&
           !precision.gather_in_8_bits && options.mesh.size(axis::fsdp) == 1 &&
           options.accumulation * options.pipeline.timetable.microbatches > 1;
}

EngineOptions with_operands(EngineOptions options) {
    options.keeps_operands = true;
    return options;
}

}  // namespace

EngineOptions with_kept_operands(const ModelConfig& model, const EngineOptions& options,
                                 std::optional<int64_t> limit) {
    if (!gains_from_kept_operands(options)) return options;
    const EngineOptions kept = with_operands(options);
    const bool fits =
        !limit || std::ranges::all_of(plans_of_stages(model, kept),
                                      [&](const MemoryPlan& plan) { return plan.total() <= *limit; });
    return fits ? kept : options;
}

EngineOptions with_kept_operands(const ModelConfig& model, const EngineOptions& options, int64_t limit,
                                 const Communicator& world) {
    if (!gains_from_kept_operands(options)) return options;
    const EngineOptions kept = with_operands(options);
    int64_t lacking = 0;
    together(world, [&] { lacking = Engine(model, kept).plan().total() - limit; });
    return world.all_reduce(lacking, Reduce::max) <= 0 ? kept : options;
}

std::string notice_on_operands(const EngineOptions& options) {
    if (!gains_from_kept_operands(options) || options.keeps_operands) return "";
    return "weights are quantized in each micro-batch; if a rank kept them in 8 bits for a step, it would "
           "not "
           "fit into its GPU";
}

}  // namespace coeus
