// SPDX-License-Identifier: Apache-2.0
// coeus tokenize INPUT... --tokenizer FOLDER --output FILE.h5: converts text to a token file.
#include "coeus/data/tokenize.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/data/standard_input.hpp"
#include "token_flags.hpp"
#include "tokenizer.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>

namespace coeus::apps {

namespace {

Flags tokenize_flags() {
    Flags flags(
        "tokenize", "INPUT... --tokenizer FOLDER --output FILE.h5", "a text file or folder",
        "Writes the tokens of all documents, each between BOS and EOS, into one HDF5 file for "
        "training, with the datasets /tokens and /documents.\n"
        "INPUT: text files (one document each), JSON or JSON Lines files (one document per object, "
        "from its field \"text\"), any of these as .gz or .zst, or folders of them; or - for JSON Lines "
        "from the standard input.\n"
        "If FILE.h5 was made from the same text and tokenizer, it is not changed. After an "
        "interruption, the same command continues where it stopped.");
    flags.add("tokenizer", "FOLDER", "", "folder or file of the tokenizer")
        .add("output", "FILE.h5", "", "file to write")
        .add("format", "jsonl|text", "jsonl",
             "of the standard input: JSON Lines, or text that is one document")
        .add("threads", "N", "0", "number of threads; 0: all cores")
        .add_force();
    add_corpus_flags(flags);
    return flags;
}

}  // namespace

void add_corpus_flags(Flags& flags) {
    flags
        .add("bad_lines", "stop|skip", "stop",
             "what happens to a line of JSON without a usable text: an error, or it is left out and counted")
        .add("field", "NAME", "text", "field of JSON objects that contains the text")
        .add_list("include", "PATTERN",
                  "of the files in folders, only those whose name matches, such as '*.cpp'; may be repeated");
}

Corpus corpus_of(const Flags& flags) {
    return Corpus({flags.words().begin(), flags.words().end()},
                  bad_lines_of(flags.choice("bad_lines", {"stop", "skip"})), flags.texts("include"),
                  flags.required("field"));
}

namespace {

// ConfigError if the flags for it are given without it, or others for files with it.
bool reads_standard_input(const Flags& flags) {
    const bool reads = std::ranges::count(flags.words(), "-") > 0;
    flags.choice("format", {"jsonl", "text"});
    if (flags.given("format") && !reads)
        throw ConfigError(
            "--format {}: is for the standard input (INPUT is -); files say their form themselves",
            flags.text("format"));
    if (reads && flags.words().size() > 1)
        throw ConfigError("-: the standard input must be the only INPUT, but there are {}",
                          flags.words().size());
    if (reads && flags.given("include"))
        throw ConfigError("--include: chooses files of folders, and - is the standard input");
    return reads;
}

Corpus corpus_of(const StandardInput& input, const Flags& flags) {
    return input.corpus(flags.text("format") == "text" ? Corpus::Kind::text : Corpus::Kind::json_lines,
                        bad_lines_of(flags.choice("bad_lines", {"stop", "skip"})), flags.required("field"));
}

}  // namespace

Flags tokenize_help() {
    return tokenize_flags();
}

int run_tokenize(const Arguments& arguments) {
    Flags flags = tokenize_flags();
    flags.parse(arguments);
    const std::string output = flags.required("output"), folder = flags.required("tokenizer");
    const auto threads = int(flags.integer("threads", 0, 4096));
    const Timer timer;
    const Tokenizer tokenizer(folder);
    std::optional<StandardInput> input;
    if (reads_standard_input(flags)) input.emplace(fmt::format("{}.{}.stdin.part", output, getpid()));
    const Corpus corpus = input ? corpus_of(*input, flags) : corpus_of(flags);
    if (!input) flags.require_not_read("--output", output, corpus.paths());
    flags.require_not_read("--output", output, files_of_tokenizer(folder));
    const Tokenized done =
        tokenize(corpus, tokenizer, output, {.threads = threads, .replace = flags.given("force")});
    const double bytes_per_token = double(done.text_bytes) / double(done.tokens);
    if (done.up_to_date) {
        log::info("{} is up to date: {}", output, done.text());
        return 0;
    }
    const double made = double(done.tokens - done.resumed_tokens) / std::max(timer.seconds(), 1e-9);
    log::info("{}: {}, {:.2f} bytes per token, {} tokens/s ({}/s) in {}", output, done.text(),
              bytes_per_token, with_commas(int64_t(made)), bytes_text(made * bytes_per_token),
              duration_text(timer.seconds()));
    return 0;
}

}  // namespace coeus::apps
