// SPDX-License-Identifier: Apache-2.0
#include "pipeline_options.hpp"

#include "coeus/base/text.hpp"
#include "coeus/pipeline/from_file.hpp"
#include "coeus/pipeline/simulate.hpp"

#include <algorithm>

namespace coeus {

namespace {

using Deck = Config::Parallelism;

int64_t micro_batches_of(const Config& config) {
    return config.training.local_batch_size / config.parallelism.pipeline_parallel_microbatch_size;
}

// The number of stages, and the option that determines it.
struct Stages {
    int64_t count;
    std::string said_by;  // begins a message: "parallelism.pipeline_parallel_layers_per_stage = 2: "
};

Stages stages_from_deck(const Deck& deck, const ModelConfig& model, const Schedule& schedule) {
    if (!deck.module_fqns_per_model_part.empty()) {
        const auto count = int64_t(deck.module_fqns_per_model_part.size());
        return {count, fmt::format("parallelism.module_fqns_per_model_part: its {} stages: ", count)};
    }
    if (!deck.pipeline_parallel_layers_per_stage)
        return {deck.pipeline_parallel_degree * schedule.default_virtual_stages,
                "parallelism.pipeline_parallel_schedule: "};
    const int64_t all = model->layers_to_split() + deck.pipeline_parallel_first_stage_less_layers +
                        deck.pipeline_parallel_last_stage_less_layers;
    const int64_t each = *deck.pipeline_parallel_layers_per_stage, count = div_ceil(all, each);
    return {count,
            fmt::format("parallelism.pipeline_parallel_layers_per_stage = {}, which makes {} stages of {} "
                        "layers (the first and last stage's weights included): ",
                        each, count, all)};
}

void require_even(const Stages& stages, int64_t ranks) {
    if (stages.count % ranks == 0) return;
    throw ConfigError(
        "{}the number of stages must be a multiple of parallelism.pipeline_parallel_degree = {}; the nearest "
        "is {}",
        stages.said_by, ranks, std::max<int64_t>(1, (stages.count + ranks / 2) / ranks) * ranks);
}

// Throws the refusal as a ConfigError that names options of the deck.
[[noreturn]] void refuse(const Refusal& refusal, const Config& config, const Stages& stages, int64_t ranks) {
    const int64_t size = config.parallelism.pipeline_parallel_microbatch_size;
    if (refusal.field == Refusal::Field::microbatches)
        throw ConfigError(
            "training.local_batch_size = {} in micro-batches of {} "
            "(parallelism.pipeline_parallel_microbatch_size): {}; the nearest valid local_batch_size is {}",
            config.training.local_batch_size, size, refusal.rule, refusal.nearest * size);
    throw ConfigError(
        "{}{}, but {} stages on {} ranks are {} on each; the nearest valid number on each rank is {}",
        stages.said_by, refusal.rule, stages.count, ranks, stages.count / ranks, refusal.nearest);
}

Timetable built_in(const Config& config, const ModelConfig& model, const MeshShape& mesh) {
    const Deck& deck = config.parallelism;
    const Schedule* schedule = find_schedule(deck.pipeline_parallel_schedule);
    if (schedule == nullptr)
        throw ConfigError(
            "parallelism.pipeline_parallel_schedule = \"{}\": needs your own table in "
            "parallelism.pipeline_parallel_schedule_csv; or choose a built-in schedule: 1F1B, GPipe, "
            "Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV",
            deck.pipeline_parallel_schedule);
    const Stages stages = stages_from_deck(deck, model, *schedule);
    require_even(stages, mesh.pp);
    const PipelineShape shape = {.ranks = mesh.pp,
                                 .microbatches = int(micro_batches_of(config)),
                                 .virtual_stages = int(stages.count / mesh.pp)};
    // torchtitan's rule: a schedule has either one stage on each rank or several, never both
    if (schedule->default_virtual_stages > 1 && shape.virtual_stages == 1 && mesh.pp > 1)
        refuse({Refusal::Field::virtual_stages,
                std::string(schedule->name) + " has at least two stages on each rank", 2},
               config, stages, mesh.pp);
    if (const auto refusal = schedule->refusal(shape)) refuse(*refusal, config, stages, mesh.pp);
    return schedule->timetable(shape);
}

Timetable from_csv(const Config& config, const MeshShape& mesh) {
    const std::string& path = config.parallelism.pipeline_parallel_schedule_csv;
    const std::string& text = config.parallelism.schedule_table;
    Timetable table = text.empty() ? read_timetable(path) : checked_timetable(text, path);
    if (table.ranks() != mesh.pp)
        throw ConfigError(
            "parallelism.pipeline_parallel_schedule_csv = \"{}\": has rows for {} ranks; set "
            "parallelism.pipeline_parallel_degree = {}",
            path, table.ranks(), table.ranks());
    if (table.microbatches != micro_batches_of(config))
        throw ConfigError(
            "parallelism.pipeline_parallel_schedule_csv = \"{}\": is for {} micro-batches; set "
            "training.local_batch_size = {} (that many of parallelism.pipeline_parallel_microbatch_size = "
            "{})",
            path, table.microbatches,
            table.microbatches * config.parallelism.pipeline_parallel_microbatch_size,
            config.parallelism.pipeline_parallel_microbatch_size);
    return table;
}

}  // namespace

PipelineOptions pipeline_from_deck(const Config& config, const ModelConfig& model, const MeshShape& mesh) {
    if (config.parallelism.expert_parallel_overlap) return {two_halves(), {}, {}};
    if (mesh.pp == 1) return {};
    const Deck& deck = config.parallelism;
    PipelineOptions pipeline;
    pipeline.timetable =
        deck.pipeline_parallel_schedule_csv.empty() ? built_in(config, model, mesh) : from_csv(config, mesh);
    const int stages = pipeline.timetable.stages();
    if (deck.module_fqns_per_model_part.empty()) {
        pipeline.parts = model->split(stages, {.embedding = deck.pipeline_parallel_first_stage_less_layers,
                                               .head = deck.pipeline_parallel_last_stage_less_layers});
        return pipeline;
    }
    pipeline.parts = model->split(deck.module_fqns_per_model_part);
    if (int(pipeline.parts.size()) != stages)
        throw ConfigError("parallelism.module_fqns_per_model_part: has {} stages, but {} has {}",
                          pipeline.parts.size(), pipeline.timetable.name, stages);
    return pipeline;
}

namespace {

// The number of layers that are in the last stage however the model is split.
int64_t layers_at_end(const ModelConfig& model) {
    return model->all_layers() - model->layers_to_split();
}

// True if these layers make the last stage longer than all others.
bool has_long_end(const std::vector<ModelPart>& parts, const ModelConfig& model) {
    if (layers_at_end(model) == 0) return false;
    int64_t most = 0, last = 0;
    for (const ModelPart& part : parts)
        if (const int64_t layers = model->layers_to_split(part); &part == &parts.back())
            last = layers;
        else
            most = std::max(most, layers);
    return last + layers_at_end(model) > most;
}

// "; ...", or "" if no larger cost of the last stage makes it short enough.
std::string remedy_of_long_end(Config config, const ModelConfig& model, int ranks) {
    if (!config.parallelism.module_fqns_per_model_part.empty())
        return "; move layers to earlier stages in parallelism.module_fqns_per_model_part";
    int64_t& cost = config.parallelism.pipeline_parallel_last_stage_less_layers;
    try {
        for (int64_t more = 0; more <= layers_at_end(model); ++more) {
            ++cost;
            if (!has_long_end(pipeline_from_deck(config, model, {.pp = ranks}).parts, model))
                return fmt::format("; set parallelism.pipeline_parallel_last_stage_less_layers = {}", cost);
        }
    } catch (const ConfigError&) {  // the cost is too large
    }
    return "";
}

}  // namespace

Findings describe_pipeline(const Config& config, const ModelConfig& model, const PipelineOptions& pipeline) {
    using Topic = Finding::Topic;
    using Severity = Finding::Severity;
    const Timetable& table = pipeline.timetable;
    if (table.stages() == 1) return {};
    std::vector<std::string> stages;
    for (int stage = 0; stage < table.stages(); ++stage)
        stages.push_back(fmt::format("{} (rank {})", model->text(pipeline.parts[size_t(stage)]),
                                     table.placement.rank_of(stage)));
    Findings found;
    found.add(
        Topic::plan,
        fmt::format("Pipeline: {}, {} ranks, {} stages, {} micro-batches per local batch, bubble {:.1f} %",
                    table.name, table.ranks(), table.stages(), table.microbatches,
                    100 * simulate(table).bubble_fraction));
    found.add(Topic::plan, "Stages: " + join(stages, "; "));
    if (table.microbatches < table.stages())
        found.add(
            Topic::plan,
            fmt::format(
                "{} micro-batches are fewer than the {} stages of the pipeline, so its ranks will idle; "
                "the number of micro-batches is training.local_batch_size / "
                "parallelism.pipeline_parallel_microbatch_size",
                table.microbatches, table.stages()),
            Severity::notice);
    if (has_long_end(pipeline.parts, model))
        found.add(
            Topic::plan,
            fmt::format("{} make the last stage longer than all others, so their ranks will wait for it{}",
                        model->layers_at_end(), remedy_of_long_end(config, model, table.ranks())),
            Severity::notice);
    return found;
}

}  // namespace coeus
