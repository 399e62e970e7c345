// SPDX-License-Identifier: Apache-2.0
// coeus tokenize INPUT... --tokenizer FOLDER --output FILE.h5: text to a token file.
#include "coeus/data/tokenize.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "options.hpp"
#include "tokenizer.hpp"

#include <cstdio>

namespace coeus::apps {

void tokenize_help() {
    std::puts(
        "coeus tokenize INPUT... --tokenizer FOLDER --output FILE.h5 [--threads N]\n"
        "\n"
        "Writes the tokens of all documents, each between BOS and EOS, into one HDF5 file that training "
        "reads:\n"
        "/tokens, /documents. INPUT: text files (one document each), JSON lines with a \"text\" field (one\n"
        "document a line), folders of these. A file made of the same text and tokenizer is left as it is.\n"
        "\n"
        "  --tokenizer FOLDER  with tokenizer.json\n"
        "  --output FILE.h5    where to write\n"
        "  --threads N         default: all cores");
}

int run_tokenize(const Arguments& arguments) {
    const Options options("tokenize", arguments, {"tokenizer", "output", "threads"});
    const std::string output = options.text("output"), folder = options.text("tokenizer");
    const auto threads = int(options.integer("threads", 0, 1));
    const Timer timer;
    const Arguments& inputs = options.words("a text file or folder");
    const Corpus corpus({inputs.begin(), inputs.end()});
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
