// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include "tokenizer.hpp"

namespace coeus::apps {

const std::vector<Command>& commands() {
    static const std::vector<Command> all = {
        {"tokenizer", "train a byte-level BPE tokenizer on text", run_tokenizer, tokenizer_help},
        {"tokenize", "turn text into a token file", run_tokenize, tokenize_help},
    };
    return all;
}

}  // namespace coeus::apps
