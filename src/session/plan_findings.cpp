// SPDX-License-Identifier: Apache-2.0
#include "coeus/session/plan_findings.hpp"

#include "coeus/base/text.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/session/chunk_choice.hpp"
#include "coeus/session/operand_choice.hpp"
#include "coeus/session/product_choice.hpp"
#include "coeus/setup/describe_precision.hpp"
#include "coeus/setup/describe_run.hpp"
#include "coeus/setup/run_options.hpp"

#include <algorithm>
#include <limits>

namespace coeus {

using Severity = Finding::Severity;
using Topic = Finding::Topic;

Findings plan_findings(const Config& config, const MeshShape& mesh, const Engine& engine,
                       std::optional<int64_t> memory_limit, std::optional<int64_t> of_checkpoint) {
    Findings found;
    found.add(describe_run(config, mesh, engine, memory_limit));
    if (const std::string notice = notice_on_chunks(config, engine.options(), of_checkpoint); !notice.empty())
        found.add(Topic::plan, notice, Severity::notice);
    if (const std::string notice = notice_on_operands(engine.options()); !notice.empty())
        found.add(Topic::plan, notice, Severity::notice);
    found.add(product_findings(config, mesh, engine.config(), engine.options()));
    // with model.print_after_conversion, describe_run() has them
    if (!config.model.print_after_conversion) found.add(Topic::layers, describe_linear_layers(engine));
    found.add(Topic::plan, idle_converters(engine), Severity::warning);
    return found;
}

Findings plan_findings(const PlannedRun& planned) {
    const PlannedDevice& device = planned.device;
    Findings found;
    found.add(Topic::device, device.text(), device.memory_bytes ? Severity::fact : Severity::unknown);
    const int ranks = planned.mesh.ranks(), cores = planned.cpu.machine_cores;
    if (device.is_here && planned.engine.options().machine.backend == Backend::cpu && ranks > cores)
        found.add(Topic::device,
                  fmt::format("{} ranks on the CPUs of this host, which has {} cores; for a cluster with "
                              "GPUs, plan with --gpu NAME, such as --gpu h100",
                              with_commas(ranks), cores),
                  Severity::hint);
    found.add(plan_findings(planned.command_line.config, planned.mesh, planned.engine, device.memory_bytes,
                            planned.chunks_of_checkpoint));
    return found;
}

Findings memory_findings(const PlannedRun& planned) {
    Findings found;
    const PlannedDevice& device = planned.device;
    if (!device.memory_bytes) return found;
    const EngineOptions& options = planned.engine.options();
    const int64_t limit = *device.memory_bytes;
    const auto holds = [&](const Alternative& advice) {
        return advice_holds(planned.command_line.config, planned.model, advice);
    };
    if (std::ranges::any_of(plans_of_stages(planned.model, options),
                            [&](const MemoryPlan& plan) { return plan.total() > limit; })) {
        const int64_t on_host = device.is_here ? memory_limit_bytes() : std::numeric_limits<int64_t>::max();
        found.add(Topic::advice,
                  fmt::format("a rank does not fit into the memory of {}: a run would be refused. {}",
                              device.title, memory_advice(planned.model, options, limit, on_host, holds)),
                  device.is_here ? Severity::refusal_here : Severity::refusal);
    } else if (const std::string spare = spare_memory_advice(planned.model, options, limit, holds);
               !spare.empty()) {
        found.add(Topic::advice, spare, Severity::hint);
    }
    return found;
}

bool advice_holds(const Config& config, const ModelConfig& model, const Alternative& advice) {
    try {
        const Config changed = with_settings(config, deck_rules(), advice.says);
        EngineOptions options = planned_options(
            changed, model, mesh_shape(changed, advice.options.mesh.ranks()),
            advice.options.machine.architecture, advice.options.machine.threads, advice.options.rank);
        options.chunk_bytes = advice.options.chunk_bytes;
        const auto promised = plans_of_stages(model, advice.options), kept = plans_of_stages(model, options);
        return std::ranges::equal(promised, kept, [](const MemoryPlan& a, const MemoryPlan& b) {
            return b.total() <= a.total() && b.total(MemoryPlace::host) <= a.total(MemoryPlace::host);
        });
    } catch (const ConfigError&) {
        return false;
    }
}

}  // namespace coeus
