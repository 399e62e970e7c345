// SPDX-License-Identifier: Apache-2.0
// Data sets by name: training.dataset = "c4" means a file or folder of that name in one of a few folders.
#pragma once

#include "coeus/config/config.hpp"

#include <string>

namespace coeus::config {

/// The paths of a data set: NAME, or NAME.h5, NAME.jsonl, ... (also .gz, .zst), in $COEUS_DATASETS,
/// ./datasets,
/// ./tests/assets, in this order. c4 and c4_validation are also found in a copy of allenai/c4, as the files
/// c4/en/c4-train.* and c4/en/c4-validation.*. Empty where there is none.
Words named_dataset(const std::string& name);

/// Where named_dataset looked, for messages: "./datasets, ./tests/assets".
std::string dataset_folders();

}  // namespace coeus::config
