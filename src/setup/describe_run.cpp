// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/describe_run.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/text.hpp"
#include "coeus/setup/describe_precision.hpp"
#include "pipeline_options.hpp"

#include <algorithm>

namespace coeus {

namespace {

using Severity = Finding::Severity;
using Topic = Finding::Topic;

Finding describe_offloading(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    if (!types.offload)
        return {Topic::plan,
                "training.enable_cpu_offload has no effect on CPUs: everything is in host memory already",
                Severity::notice};
    const bool inputs = engine.layer_memory().activations_on_host > 0;
    return {Topic::plan, fmt::format("Offloaded to host memory: {}optimizer moments{}",
                                     types.offloads_master() ? "master weights, " : "",
                                     inputs ? ", inputs of recomputed blocks"
                                            : "; no activations, since no whole block is recomputed "
                                              "(activation_checkpoint.mode = \"full\" does that)")};
}

std::string gradients_text(const StateTypes& types) {
    const std::string sums = name_of(types.accumulate());
    return types.gradients_in_bf16 ? fmt::format("bfloat16 (of matrices; sums over ranks in {})", sums)
                                   : sums;
}

// Why gathers two units ahead are not made although the deck asks for them; "" if they are made.
std::string prefetch_notice(const MeshShape& mesh, const GatherOptions& gather) {
    if (gather.prefetch == 1) return "";
    const std::string idle = "parallelism.fsdp_prefetch has no effect ";
    if (mesh.size(axis::fsdp) == 1)
        return idle + "on this mesh: only where parameters are divided (dp_shard x cp > 1) are they gathered";
    if (gather.weights == Keep::all)
        return idle + "if gathered weights are kept (fsdp_reshard_after_forward)";
    return "";
}

// Why it makes no difference when gradients are summed although the deck says it; "" if it does.
std::string sum_notice(const Config& config, const EngineOptions& options) {
    if (config.parallelism.fsdp_sum_gradients == "default") return "";
    const std::string idle = "parallelism.fsdp_sum_gradients has no effect ";
    if (options.mesh.size(axis::fsdp) == 1)
        return idle +
               "on this mesh: gradients of weights that no ranks divide (dp_shard x cp > 1) are always "
               "summed once a step";
    const bool in_turns = options.overlap_pairs && options.pipeline.timetable.has_halves();
    // gradients of halves that take turns are summed together
    if (options.accumulation * options.pipeline.timetable.microbatches == (in_turns ? 2 : 1))
        return idle + "on a step of one local batch";
    return "";
}

std::string model_text(const ModelConfig& model, int64_t seq_len) {
    const int64_t all = model->parameters(), active = model->active_parameters();
    return fmt::format("Model: {}, {} parameters{} ({}), {:.4g} FLOPs per token", model->name(),
                       with_commas(all), active < all ? ", " + with_commas(active) + " active" : "",
                       model->shapes(), model->flops_per_token(seq_len));
}

std::string batch_text(const Config& config, const MeshShape& mesh, const EngineOptions& options) {
    return fmt::format(
        "Batch: {} of {} tokens per step ({} local x {} data {} x {} accumulation), {} (warm-up {})",
        counted(options.step_sequences(), "sequence"), options.training.seq_len, options.training.sequences,
        mesh.size(axis::dp), mesh.size(axis::dp) == 1 ? "rank" : "ranks", options.accumulation,
        counted(config.training.steps, "step"),
        std::min(config.lr_scheduler.warmup_steps,
                 config.lr_scheduler.total_steps.value_or(config.training.steps)));
}

std::string divided_sequences_text(const Config::Parallelism& deck, const MeshShape& mesh, int64_t seq_len) {
    return fmt::format(
        "Sequences: each of {} ranks has {} of {} tokens (load balancer {}); keys and values "
        "are exchanged by {}",
        mesh.cp, seq_len / mesh.cp, seq_len, deck.context_parallel_load_balancer,
        deck.context_parallel_rotate_method);
}

std::string divided_experts_text(const MeshShape& mesh, const Engine& engine) {
    const EngineOptions& options = engine.options();
    const ExpertNumbers experts = engine.config()->experts();
    const int64_t tokens = options.training.count() / options.pipeline.timetable.microbatches /
                           (mesh.size(axis::cp | axis::tp) / mesh.size(axis::etp)),
                  own = experts.all / mesh.ep;
    const ExpertCapacity rows =
        ExpertCapacity::of(mesh.ep, tokens, experts.chosen, own, options.exchanges.expert_capacity);
    const std::string more =
        rows.later == 0 ? ", as many as can come"
        : engine.uses_expert_blocks()
            ? "; a step with more of them is computed twice"
            : fmt::format("; more of them come in rounds of {}", with_commas(rows.later));
    return fmt::format(
        "Experts: each of {} ranks has {} of {}, and room for {} choices of tokens at a time{} "
        "(model.non_blocking_capacity_factor = {})",
        mesh.ep, own, experts.all, with_commas(rows.first), more, options.exchanges.expert_capacity);
}

}  // namespace

Findings describe_run(const Config& config, const MeshShape& mesh, const Engine& engine,
                      std::optional<int64_t> memory_limit) {
    const EngineOptions& options = engine.options();
    Findings found;
    const auto add = [&](const std::string& text) { found.add(Topic::plan, text); };
    add(mesh.ranks() == 1 ? std::string("Mesh: 1 rank")
                          : fmt::format("Mesh: {} ranks: {}", mesh.ranks(), mesh.text()));
    add(model_text(engine.config(), options.training.seq_len));
    add(fmt::format("Types: weights {}, compute {}, gradients {}", name_of(options.types.master),
                    name_of(options.types.compute), gradients_text(options.types)));
    add(batch_text(config, mesh, options));
    if (const std::string frozen = Frozen::text(engine.model().parameters()); !frozen.empty())
        add("Frozen (model.frozen): " + frozen);
    found.add(describe_precision(engine));
    if (config.model.print_after_conversion) found.add(Topic::plan, describe_linear_layers(engine));
    const Parameters& parameters = engine.model().parameters();
    if (engine.optimizer().num_optimizers(parameters) > 1 || !options.param_groups.empty())
        add("Optimizer: " + engine.optimizer().text(parameters));
    if (mesh.cp > 1) add(divided_sequences_text(config.parallelism, mesh, options.training.seq_len));
    for (const std::string& note : engine.config()->notes(options.training)) add(note);
    if (mesh.ep > 1) add(divided_experts_text(mesh, engine));
    if (const std::string recomputed = engine.recompute().text(engine.model().layers_here());
        !recomputed.empty())
        add(recomputed);
    if (const std::string notice = prefetch_notice(mesh, options.gather); !notice.empty())
        found.add(Topic::plan, notice, Severity::notice);
    if (const std::string notice = sum_notice(config, options); !notice.empty())
        found.add(Topic::plan, notice, Severity::notice);
    if (config.training.enable_cpu_offload) found.add(describe_offloading(engine));
    add(engine.plan().text(memory_limit));
    if (mesh.pp > 1) {
        std::vector<std::string> totals;
        for (const MemoryPlan& plan : plans_of_stages(engine.config(), options))
            totals.push_back(bytes_text(double(plan.total())));
        add("The plan above is for pipeline rank 0. Totals of all pipeline ranks: " + join(totals, ", "));
    }
    found.add(describe_pipeline(config, engine.config(), options.pipeline));
    if (options.overlap_pairs)
        add(options.pipeline.timetable.has_halves()
                ? "Halves of the local batch take turns while experts exchange rows"
                : "Pairs: forward and backward take turns while experts exchange rows");
    return found;
}

}  // namespace coeus
