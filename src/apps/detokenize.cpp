// SPDX-License-Identifier: Apache-2.0
// coeus detokenize TOKENS.h5: converts a token file to JSON Lines.
#include "coeus/data/detokenize.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/data/separator.hpp"
#include "coeus/file/raw_file.hpp"
#include "detokenize.hpp"
#include "number_ranges.hpp"
#include "token_flags.hpp"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

namespace coeus::apps {

namespace {

Flags detokenize_flags() {
    Flags flags(
        "detokenize", "TOKENS --tokenizer PLACE [--documents 10-20] [--output FILE.jsonl]", "a token file",
        "Writes the documents of a token file as JSON Lines, one object with a field \"text\" for each "
        "document, without the BOS and EOS around it. `coeus tokenize` makes the same tokens of them, if "
        "the tokens came from text.\n"
        "TOKENS: a token file of `coeus tokenize`, Megatron-LM, llm.c or NumPy.");
    flags.add("tokenizer", "PLACE", "", "folder or file of the tokenizer that made the tokens")
        .add("documents", "A-B", "", "only these documents, counted from 0; default: all")
        .add("output", "FILE.jsonl", "", "file to write; default: the standard output")
        .add_switch(
            "special",
            "write special tokens inside documents out, such as <|im_start|>; they are left out otherwise")
        .add("threads", "N", "0", "number of threads; 0: all cores")
        .add_force();
    add_separator_flags(flags);
    return flags;
}

// The lines, in a file that appears when it is complete, or on the standard output.
class LinesFile {
public:
    explicit LinesFile(std::string file) : name_(std::move(file)) {
        if (!name_.empty()) file_.emplace(RawFile::create(part()));
    }
    ~LinesFile() {
        std::error_code ignored;
        if (file_) std::filesystem::remove(part(), ignored);
    }
    LinesFile(const LinesFile&) = delete;
    LinesFile& operator=(const LinesFile&) = delete;

    void write(std::string_view lines) {
        if (file_)
            file_->write(lines.data(), int64_t(lines.size()), bytes_);
        else
            std::fwrite(lines.data(), 1, lines.size(), stdout);
        bytes_ += int64_t(lines.size());
    }
    void publish() {
        if (!file_) return;
        file_->sync();
        publish_file(part(), name_);
    }

private:
    std::string part() const { return name_ + ".part"; }
    std::string name_;
    std::optional<RawFile> file_;
    int64_t bytes_ = 0;
};

}  // namespace

Flags detokenize_help() {
    return detokenize_flags();
}

int run_detokenize(const Arguments& arguments) {
    Flags flags = detokenize_flags();
    flags.parse(arguments);
    if (flags.words().size() != 1)
        throw ConfigError("coeus detokenize: converts one token file, but {} are given",
                          flags.words().size());
    const std::string place = flags.required("tokenizer"), &output = flags.text("output");
    DetokenizeOptions options{.special = flags.given("special"),
                              .threads = int(flags.integer("threads", 0, 4096))};
    if (flags.given("documents"))
        std::tie(options.first, options.last) = number_range("--documents", flags.text("documents"));
    if (flags.given("output")) {
        flags.require_not_read("--output", flags.required("output"), files_of_tokens(flags.words()[0]));
        flags.require_not_read("--output", output, files_of_tokenizer(place));
        flags.require_replaceable(output);
    }
    const GivenSeparator given = separator_of(flags);
    const Tokenizer tokenizer(place);
    TokenFile file(flags.words()[0]);
    if (const std::string line = divide_documents(file, given, place, options.threads); !line.empty())
        log::info("{}", line);
    LinesFile out(output);
    const Detokenized done =
        detokenize(file, tokenizer, options, [&](std::string_view lines) { out.write(lines); });
    out.publish();
    if (done.special_left_out > 0)
        log::warn("{} inside documents were left out; --special writes them out",
                  counted(done.special_left_out, "special token"));
    if (!output.empty()) log::info("{}: {}", output, counted(done.documents, "document"));
    return 0;
}

}  // namespace coeus::apps
