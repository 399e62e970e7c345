// SPDX-License-Identifier: Apache-2.0
// Stages and timetable of the pipeline, from the deck.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/models/model_config.hpp"
#include "coeus/setup/finding.hpp"

namespace coeus {

/// Stages and timetable of [parallelism] for this mesh; one stage if the mesh has no pp axis. The number of
/// stages is that of the CSV file or of module_fqns_per_model_part, or follows from layers_per_stage, or is
/// the schedule's default. ConfigError with option, rule and nearest valid value; for a CSV file with the
/// first action that breaks a rule.
PipelineOptions pipeline_from_deck(const Config& config, const ModelConfig& model, const MeshShape& mesh);

/// What a run logs about the pipeline of its deck at the start: schedule and bubble; stages; notices if there
/// are fewer micro-batches than stages, and if layers that are not split make the last stage the longest.
Findings describe_pipeline(const Config& config, const ModelConfig& model, const PipelineOptions& pipeline);

}  // namespace coeus
