// SPDX-License-Identifier: Apache-2.0
// Names of model families for decks, without the models.
#pragma once

#include <string>
#include <vector>

namespace coeus {

/// The family of a deck without model.name.
const std::string& default_family();
/// The families that are implemented, and those of torchtitan that are known but not implemented yet.
std::vector<std::string> family_names();
const std::vector<std::string>& families_not_built();

}  // namespace coeus
