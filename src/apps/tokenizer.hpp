// SPDX-License-Identifier: Apache-2.0
// The two sub-commands for text: coeus tokenizer and coeus tokenize.
#pragma once

#include "coeus/data/corpus.hpp"
#include "commands.hpp"

namespace coeus::apps {

/// The flags of a command whose words are a corpus, and that corpus.
void add_corpus_flags(Flags& flags);
Corpus corpus_of(const Flags& flags);

int run_tokenizer(const Arguments& arguments);
Flags tokenizer_help();
int run_tokenize(const Arguments& arguments);
Flags tokenize_help();

}  // namespace coeus::apps
