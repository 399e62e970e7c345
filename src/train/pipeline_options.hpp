// SPDX-License-Identifier: Apache-2.0
// From the deck to the pipeline: its stages and its timetable.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/models/decoder_config.hpp"

namespace coeus {

/// Stages and timetable of [parallelism] for this mesh; one stage where the mesh has no pp axis. The number
/// of stages is that of the CSV file or of module_fqns_per_model_part, or follows from layers_per_stage, or
/// is what the schedule has. ConfigError naming option, rule and nearest valid value; of a file, its first
/// offending action.
PipelineOptions pipeline_from_deck(const Config& config, const DecoderConfig& model, const MeshShape& mesh);

/// What of a pipeline a run says before it starts: a line on schedule and bubble, one on the stages, one
/// where there are fewer micro-batches than stages.
std::vector<std::string> describe_pipeline(const PipelineOptions& pipeline);

}  // namespace coeus
