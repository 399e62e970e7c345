// SPDX-License-Identifier: Apache-2.0
// Flags of commands that read token files of other programs.
#pragma once

#include "coeus/config/command_flags.hpp"
#include "coeus/data/separator.hpp"

namespace coeus::apps {

/// --bos_id and --eos_id.
void add_separator_flags(Flags& flags);
/// ConfigError if both are given.
GivenSeparator separator_of(const Flags& flags);

// What a command must not replace: the files of a token file, both if it is a pair, and of the tokenizer at a
// place. Some may not exist.
std::vector<std::string> files_of_tokens(const std::string& tokens);
std::vector<std::string> files_of_tokenizer(const std::string& place);

}  // namespace coeus::apps
