// SPDX-License-Identifier: Apache-2.0
// coeus tokenize INPUT... --tokenizer FOLDER --output FILE.h5: text to a token file.
#include "coeus/data/tokenize.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/train/flags.hpp"
#include "tokenizer.hpp"

namespace coeus::apps {

namespace {

Flags tokenize_flags() {
    Flags flags(
        "tokenize", "INPUT... --tokenizer FOLDER --output FILE.h5", "a text file or folder",
        "Writes the tokens of all documents, each between BOS and EOS, into one HDF5 file that training "
        "reads:\n"
        "/tokens, /documents. INPUT: text files (one document each), JSON lines with a \"text\" field (one\n"
        "document a line), folders of these. A file made of the same text and tokenizer is left as it is.");
    flags.add("tokenizer", "FOLDER", "", "a tokenizer's folder, or its file")
        .add("output", "FILE.h5", "", "where to write")
        .add("threads", "N", "0", "0: all cores");
    return flags;
}

}  // namespace

void tokenize_help() {
    tokenize_flags().print_help();
}

int run_tokenize(const Arguments& arguments) {
    Flags flags = tokenize_flags();
    flags.parse(arguments);
    const std::string output = flags.required("output"), folder = flags.required("tokenizer");
    const auto threads = int(flags.integer("threads", 0, 4096));
    const Timer timer;
    const Corpus corpus({flags.words().begin(), flags.words().end()});
    const Tokenizer tokenizer(folder);
    const Tokenized done = tokenize(corpus, tokenizer, output, threads);
    if (done.up_to_date)
        log::info("{} is up to date: {}", output, done.text());
    else
        log::info("{}: {}, {:.2f} bytes per token, {}/s", output, done.text(),
                  double(corpus.bytes()) / double(done.tokens),
                  bytes_text(double(corpus.bytes()) / timer.seconds()));
    return 0;
}

}  // namespace coeus::apps
