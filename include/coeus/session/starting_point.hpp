// SPDX-License-Identifier: Apache-2.0
// Where a run with a deck would start: at a checkpoint, at the weights of another model, or at random
// weights.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// The checkpoints from which a run with this deck may continue, the preferred one first: those of its own
/// folder, else that of checkpoint.initial_load_path if all of it is loaded.
std::vector<std::string> checkpoints_to_continue(const Config& config);

/// Path of the weights from which a run with this deck starts; "" if it resumes from its own folder, or
/// starts from random weights.
std::string weights_at_start(const Config& config);

/// Bytes of the chunks (chunk_choice.hpp) of the run that wrote the checkpoint with which a run with this
/// deck would start. None in three cases: no checkpoint has them, the run is on CPUs, or the deck chooses the
/// size itself.
std::optional<int64_t> chunks_of_checkpoint(const Config& config);
/// The same on all ranks; only rank 0 reads files. Collective.
std::optional<int64_t> chunks_of_checkpoint(const Config& config, const Communicator& world);

}  // namespace coeus
