// SPDX-License-Identifier: Apache-2.0
// checkpoint.exclude_from_loading: parts of a checkpoint that a run does not load but resets.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/io/checkpoint.hpp"

#include <string>

namespace coeus {

/// The parts of `parts` that must be reset when a checkpoint in the run's own folder is loaded. The others
/// were reset when the run that wrote it (its deck: `checkpoint_deck`) started. Their values in the
/// checkpoint are therefore this run's own, and a requeued job resumes with them.
Words still_to_exclude(const Words& parts, const std::string& checkpoint_deck);

/// The record of a run that resets these parts and continues with the others.
TrainRecord reset_parts(TrainRecord train, const Words& parts);

/// The line of the log on what is reset; "" if nothing is excluded. `parts`: all parts of the deck;
/// `excluded`: those that are reset now.
std::string describe_exclusion(const Words& parts, const Words& excluded);

}  // namespace coeus
