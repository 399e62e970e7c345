// SPDX-License-Identifier: Apache-2.0
#include "support/golden_evaluation.hpp"

#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"

#include <algorithm>

namespace coeus::test {

namespace fs = std::filesystem;

std::vector<fs::path> golden_evaluations() {
    const fs::path folder = golden("evaluate");
    std::vector<fs::path> found;
    if (folder.empty()) return found;
    for (const std::string& name : files_in(folder))
        if (name.ends_with(".json") && JsonDocument::read(folder / name).root().contains("model"))
            found.push_back(folder / name);
    return found;
}

std::vector<std::string> golden_task_files() {
    const fs::path folder = golden("evaluate");
    std::vector<std::string> found;
    for (const std::string& name : files_in(folder))
        if (name.ends_with(".jsonl")) found.push_back((folder / name).string());
    return found;
}

namespace {

DecoderConfig model_of(const JsonDocument& document) {
    return model_from_hub((golden("models") / document.root().string("model")).string());
}

}  // namespace

bool GoldenEvaluation::fits(const fs::path& file, const MeshShape& mesh) {
    const DecoderConfig model = model_of(JsonDocument::read(file));
    return mesh.pp <= model.layers &&
           ModelConfig(model)->refusal({.tensor = mesh.tp, .context = mesh.cp, .expert = mesh.ep}).empty();
}

GoldenEvaluation::GoldenEvaluation(const fs::path& file, const Mesh& mesh)
    : document_(JsonDocument::read(file)), context_(document_.root().integer("context")), mesh_(mesh) {
    const fs::path folder = golden("models") / document_.root().string("model");
    model_ = model_of(document_);
    const ScoringOptions rows = options(context_);
    EngineOptions with = {.trains = false,
                          .types = {Dtype::f64, Dtype::f64},
                          .validation = {.sequences = rows.sequences,
                                         .seq_len = rows.row_length,
                                         .masks_documents = !rows.one_in_a_row},
                          .scores_tokens = true,
                          .mesh = mesh.shape(),
                          .rank = mesh.world().rank()};
    if (mesh.shape().pp > 1) with.pipeline = pipeline_of("1F1B", mesh.shape().pp, mesh.shape().pp, 1, model_);
    engine_ = std::make_unique<Engine>(model_, with);
    engine_->allocate(mesh);
    Pretrained(folder, mesh.world(), false).load(decoder_of(engine_->model()), mesh.world());
    engine_->renew_weights();
}

Tokenizer GoldenEvaluation::tokenizer() const {
    return Tokenizer(golden("evaluate") / tokenizer_name());
}

std::vector<Task> GoldenEvaluation::tasks(AddBos add_bos) const {
    return read_tasks(golden_task_files(), tokenizer(), {.context = context_, .add_bos = add_bos});
}

ScoringOptions GoldenEvaluation::options(int64_t stride) const {
    return {.context = context_,
            .stride = stride,
            .row_length = row_length_for(model_, context_, mesh_.size(axis::tp), mesh_.size(axis::cp)),
            .one_in_a_row = needs_row_for_each(model_),
            .sequences = 8};
}

std::vector<TaskResult> GoldenEvaluation::results(const std::vector<Task>& tasks, int64_t stride) {
    Scoring scoring(tasks, options(stride), mesh_.world());
    scoring.run(*engine_);
    return results_of(tasks, scoring);
}

std::vector<double> golden_scores(const JsonView& part, const std::string& task, const std::string& stride) {
    std::vector<double> scores;
    for (const JsonView& line : part[task]["scores" + stride].elements()) {
        if (!line.is_array()) {
            scores.push_back(line.number());
            continue;
        }
        for (const JsonView& choice : line.elements()) scores.push_back(choice[size_t(0)].number());
    }
    return scores;
}

}  // namespace coeus::test
