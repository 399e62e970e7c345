// SPDX-License-Identifier: Apache-2.0
// The table of the model families by name. A new family needs a file in models/families and a line in
// registry.cpp. A program outside src that links the library registers its own family (register_family).
#pragma once

#include "coeus/models/family.hpp"

#include <string_view>
#include <vector>

namespace coeus {

/// Returns all families, also those that the program registered.
const std::vector<ModelFamily>& model_families();
/// Their names, and those of torchtitan's families that are known but not implemented yet.
std::vector<std::string> family_names();
const std::vector<std::string>& families_not_built();
/// Other names of families in decks.
struct OtherFamilyName {
    const char *name, *family;  ///< "llama3_ft", "llama3"
    const char* why;            ///< what the name says besides, and which options say that here
};
const std::vector<OtherFamilyName>& other_family_names();
/// Adds a family to those that decks may name, before the program looks for one (run_program.hpp). Its
/// flavours get its name. ConfigError: the name belongs to a family, also to one not implemented yet; or a
/// flavour is not valid. After an error, also one of the family's own functions, the family is not there.
void register_family(ModelFamily family);
/// Returns the family with this name. If there is none, ConfigError says the nearest name, or that a known
/// family is not implemented yet.
const ModelFamily& find_family(std::string_view name);
/// Returns the same, for its form in Hugging Face folders. ConfigError if it has none.
const ModelFamily& find_hub_family(std::string_view name);
/// Returns the flavour with this name. If there is none, ConfigError says the nearest one.
const DecoderConfig& find_flavor(const ModelFamily& family, std::string_view flavor);

}  // namespace coeus
