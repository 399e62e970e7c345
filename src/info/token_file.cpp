// SPDX-License-Identifier: Apache-2.0
// coeus info for a token file: its size and tokenizer. --verify checks that its ids are in the vocabulary.
#include "coeus/data/token_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "coeus/info/kinds.hpp"

#include <algorithm>
#include <vector>

namespace coeus::info {

namespace {

/// Checks the ids. The documents were checked when the file was opened.
void verify_tokens(TokenFile& tokens) {
    const std::string path = tokens.path();
    ProgressBar bar("verifying", tokens.num_tokens(), false);
    std::vector<int32_t> piece(1 << 16);
    int32_t largest = 0;
    for (int64_t first = 0; first < tokens.num_tokens(); first += int64_t(piece.size())) {
        piece.resize(size_t(std::min(tokens.num_tokens() - first, int64_t(piece.size()))));
        tokens.read(first, piece);
        largest = std::max(largest, *std::max_element(piece.begin(), piece.end()));
        bar.update(first);
    }
    if (is_token_file(path)) {
        const hdf5::File file = hdf5::File::open(path);
        for (const char* name : {"max_token", "vocab_size"}) {
            if (!file.has_attribute(name)) continue;
            const int64_t said = file.int_attribute(name) - (std::string(name) == "vocab_size");
            if (largest > said)
                throw ConfigError(
                    "{} is damaged: it contains the id {}, but its attribute {} allows only ids up to {}",
                    path, largest, name, said);
        }
    } else {
        tokens.check_vocabulary(int64_t(INT32_MAX) + 1);  // none is negative
    }
    entry("verified", fmt::format("the largest id is {}", with_commas(largest)));
}

std::string type_of_ids(const TokenFile& tokens) {
    const TokenFile::Layout& layout = tokens.layout();
    return fmt::format("{}int{}", layout.is_signed ? "" : "u", 8 * layout.tokens.width);
}

}  // namespace

void show_token_file(const std::string& path, const Options& options) {
    TokenFile tokens(path);
    const bool is_ours = tokens.layout().format == "HDF5";
    print("{}: token file{}, {}\n", path, is_ours ? "" : " of " + tokens.layout().format,
          file_size(tokens.path()));
    entry("tokens", fmt::format("{} ({})", with_commas(tokens.num_tokens()), type_of_ids(tokens)));
    entry("documents", tokens.lists_documents() || is_ours
                           ? with_commas(tokens.num_documents())
                           : std::string("no list: training.bos_id or eos_id divides them"));
    entry("loss mask", tokens.has_loss_mask() ? "yes" : "no");
    if (tokens.document_bytes() > 0)
        entry("bytes per token",
              fmt::format("{:.2f}", double(tokens.document_bytes()) / double(tokens.num_tokens())));
    if (is_ours) {
        const hdf5::File file = hdf5::File::open(path);
        for (const char* name : {"source", "tokenizer", "vocab_size"})
            if (file.has_attribute(name))
                entry(name, std::string(name) == "vocab_size" ? with_commas(file.int_attribute(name))
                                                              : file.string_attribute(name));
    }
    if (options.verify) verify_tokens(tokens);
}

}  // namespace coeus::info
