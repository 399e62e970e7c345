// SPDX-License-Identifier: Apache-2.0
// checkpoint.exclude_from_loading: parts of a checkpoint that a run does not take over but begins again.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/io/checkpoint.hpp"

#include <string>

namespace coeus {

/// Of the deck's parts those that a checkpoint of the run's own folder still has. The others were left out
/// when the run that wrote it (`checkpoint_deck`) began, and are its own since: a job that is queued again
/// goes on with them.
Words still_to_exclude(const Words& parts, const std::string& checkpoint_deck);

/// Where a run is that begins these parts again and continues with the others.
TrainRecord reset_parts(TrainRecord train, const Words& parts);

/// What the log says of it; "" where nothing is excluded.
std::string describe_exclusion(const Words& parts, const Words& excluded);

}  // namespace coeus
