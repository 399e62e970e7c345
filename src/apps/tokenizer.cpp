// SPDX-License-Identifier: Apache-2.0
// coeus tokenizer CORPUS... --output FOLDER: trains a byte-level BPE tokenizer on text.
#include "tokenizer.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/data/bpe_training.hpp"

#include <filesystem>

namespace coeus::apps {

namespace {

Flags tokenizer_flags() {
    Flags flags("tokenizer", "CORPUS... --output FOLDER [--vocab_size N]", "a text file or folder",
                "Trains a byte-level BPE tokenizer and writes it into FOLDER in Hugging Face's format: "
                "tokenizer.json and tokenizer_config.json.\n"
                "CORPUS: text files, JSON or JSON Lines files with a field \"text\", any of these as .gz or "
                ".zst, or folders of them.");
    flags.add("output", "FOLDER", "", "folder to write; created if it does not exist")
        .add("vocab_size", "N", "2048",
             "size of the vocabulary, including the 256 bytes, BOS, EOS and special tokens")
        .add_list("special", "TOKEN",
                  "a special token, such as \"<|im_start|>\", with the next id after EOS; may be repeated")
        .add("threads", "N", "0", "number of threads; 0: all cores")
        .add_force();
    add_corpus_flags(flags);
    return flags;
}

}  // namespace

Flags tokenizer_help() {
    return tokenizer_flags();
}

int run_tokenizer(const Arguments& arguments) {
    Flags flags = tokenizer_flags();
    flags.parse(arguments);
    const std::string output = flags.required("output");
    const int64_t vocab_size = flags.integer("vocab_size", 1);
    const auto threads = int(flags.integer("threads", 0, 4096));
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
        flags.require_replaceable((std::filesystem::path(output) / name).string());
    const Timer timer;
    const Corpus corpus = corpus_of(flags);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
        flags.require_not_read("--output", (std::filesystem::path(output) / name).string(), corpus.paths());
    const TokenizerTraining done =
        train_tokenizer(corpus, vocab_size, output, threads, flags.texts("special"));
    if (done.vocab_size < vocab_size)
        log::warn("the corpus yields only {} tokens: there were no more pairs to merge",
                  with_commas(done.vocab_size));
    log::info("{}: {} tokens from {} of text ({} distinct words) in {}", output, with_commas(done.vocab_size),
              bytes_text(double(corpus.bytes())), with_commas(done.distinct_words),
              duration_text(timer.seconds()));
    return 0;
}

}  // namespace coeus::apps
