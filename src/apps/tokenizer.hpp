// SPDX-License-Identifier: Apache-2.0
// The two sub-commands for text: coeus tokenizer and coeus tokenize.
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int run_tokenizer(const Arguments& arguments);
Flags tokenizer_help();
int run_tokenize(const Arguments& arguments);
Flags tokenize_help();

}  // namespace coeus::apps
