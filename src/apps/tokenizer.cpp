// SPDX-License-Identifier: Apache-2.0
// coeus tokenizer CORPUS... --output FOLDER: trains a byte-level BPE vocabulary on the user's text.
#include "tokenizer.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/bpe_training.hpp"
#include "options.hpp"

#include <cstdio>

namespace coeus::apps {

void tokenizer_help() {
    std::puts(
        "coeus tokenizer CORPUS... --output FOLDER [--vocab_size 2048] [--threads N]\n"
        "\n"
        "Trains a byte-level BPE tokenizer and writes tokenizer.json and tokenizer_config.json, the form of\n"
        "Hugging Face, into FOLDER. CORPUS: text files, JSON lines with a \"text\" field, folders of these.\n"
        "\n"
        "  --output FOLDER     where to write; made if absent\n"
        "  --vocab_size N      tokens in all, with the 256 bytes, BOS and EOS (default 2048)\n"
        "  --threads N         default: all cores");
}

int run_tokenizer(const Arguments& arguments) {
    const Options options("tokenizer", arguments, {"output", "vocab_size", "threads"});
    const std::string output = options.text("output");
    const int64_t vocab_size = options.integer("vocab_size", 2048, 1);
    const auto threads = int(options.integer("threads", 0, 1));
    const Timer timer;
    const Arguments& inputs = options.words("a text file or folder");
    const Corpus corpus({inputs.begin(), inputs.end()});
    const TokenizerTraining done = train_tokenizer(corpus, vocab_size, output, threads);
    if (done.vocab_size < vocab_size)
        log::warn("the corpus gives only {} tokens: no pair of neighbours was left to merge",
                  with_commas(done.vocab_size));
    log::info("{}: {} tokens from {} of text ({} distinct words) in {}", output, with_commas(done.vocab_size),
              bytes_text(double(corpus.bytes())), with_commas(done.distinct_words),
              duration_text(timer.seconds()));
    return 0;
}

}  // namespace coeus::apps
