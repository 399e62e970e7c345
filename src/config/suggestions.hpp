// SPDX-License-Identifier: Apache-2.0
// What an unknown name or value of a deck probably means: words of other trainers, and misspellings.
#pragma once

#include "coeus/config/config.hpp"

#include <string>

namespace coeus::config {

/// A name of an option in another trainer (Megatron-LM, Hugging Face's Trainer, nanotron, axolotl, ...).
struct ForeignName {
    const char* word;    ///< the last part of the name, with "_" for "-"
    const char* option;  ///< its name here; "" if Coeus has no such option
    const char* remark;  ///< what else the user must know; "" if nothing
};
/// All of them, for tests.
const std::vector<ForeignName>& foreign_names();

/// "unknown option training.step; did you mean training.steps?" Looks first for a word of another trainer
/// (and takes the option with this meaning in the user's section if there is one), then for the same last
/// part in another section, then for a misspelling in the same section, then anywhere. `dashes`: "--" for the
/// command line. `others`: further valid names.
std::string unknown_option(const std::string& name, const char* dashes = "", const Words& others = {});

/// What a value that an option does not have means in other trainers: "bf16" is bfloat16. "" if it is not
/// known, or if the option does not have that choice either.
std::string foreign_value(const std::string& value, const Words& choices);

}  // namespace coeus::config
