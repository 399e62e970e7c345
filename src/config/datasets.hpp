// SPDX-License-Identifier: Apache-2.0
// Datasets by name: training.dataset = "c4" means a file or folder with that name in one of a few folders.
#pragma once

#include "coeus/config/config.hpp"

#include <string>

namespace coeus::config {

/// The paths of a dataset. Looked for are NAME, NAME.h5, NAME.jsonl, ... (also .gz and .zst) in
/// $COEUS_DATASETS, ./datasets and ./tests/assets, in this order. c4 and c4_validation are also found in a
/// copy of allenai/c4, as the files c4/en/c4-train.* and c4/en/c4-validation.*. Empty if the dataset is not
/// found.
Words named_dataset(const std::string& name);

/// The folders in which named_dataset looks, for messages: "./datasets, ./tests/assets".
std::string dataset_folders();

}  // namespace coeus::config
