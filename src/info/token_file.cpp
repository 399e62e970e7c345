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
void verify_tokens(const TokenFile& tokens, const hdf5::File& file) {
    int32_t largest = 0;
    std::vector<int32_t> piece(1 << 16);
    ProgressBar bar("verifying", tokens.num_tokens(), false);
    for (int64_t first = 0; first < tokens.num_tokens(); first += int64_t(piece.size())) {
        piece.resize(size_t(std::min(tokens.num_tokens() - first, int64_t(piece.size()))));
        tokens.read(first, piece);
        largest = std::max(largest, *std::max_element(piece.begin(), piece.end()));
        bar.update(first);
    }
    for (const char* name : {"max_token", "vocab_size"}) {
        if (!file.has_attribute(name)) continue;
        const int64_t said = file.int_attribute(name) - (std::string(name) == "vocab_size");
        if (largest > said)
            throw ConfigError(
                "{} is damaged: it contains the id {}, but its attribute {} allows only ids up to {}",
                tokens.path(), largest, name, said);
    }
    entry("verified", fmt::format("the largest id is {}", with_commas(largest)));
}

}  // namespace

void show_token_file(const std::string& path, const Options& options) {
    const hdf5::File file = hdf5::File::open(path);
    const TokenFile tokens(path);
    print("{}: token file, {}\n", path, file_size(path));
    entry("tokens", fmt::format("{} ({})", with_commas(tokens.num_tokens()),
                                hdf5::name_of(file.dataset("tokens").type())));
    entry("documents", with_commas(tokens.num_documents()));
    entry("loss mask", tokens.has_loss_mask() ? "yes" : "no");
    for (const char* name : {"source", "tokenizer", "vocab_size"})
        if (file.has_attribute(name))
            entry(name, std::string(name) == "vocab_size" ? with_commas(file.int_attribute(name))
                                                          : file.string_attribute(name));
    if (options.verify) verify_tokens(tokens, file);
}

}  // namespace coeus::info
