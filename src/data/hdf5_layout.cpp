// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/data/encoded_file.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "elements.hpp"
#include "token_formats.hpp"

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace coeus {

namespace {

// ConfigError unless the offsets ascend from 0 to the number of tokens.
void check_documents(const RawFile& raw, const TokenFile::Place& documents, int64_t tokens) {
    std::vector<std::byte> piece;
    int64_t before = 0;
    for (int64_t first = 0; first < documents.count; first += 1 << 16) {
        const int64_t count = std::min<int64_t>(1 << 16, documents.count - first);
        piece.resize(size_t(count * documents.width));
        raw.read_small(piece.data(), int64_t(piece.size()), documents.offset + first * documents.width);
        for (int64_t d = first; d < first + count; ++d) {
            const int64_t begin = element_at(piece.data() + (d - first) * documents.width, documents.width);
            if ((d == 0 && begin != 0) || begin < before || begin > tokens)
                throw ConfigError(
                    "{}: /documents[{}] is {}: offsets must ascend from 0 to the number of tokens, {}",
                    raw.path(), d, begin, tokens);
            before = begin;
        }
    }
    if (before != tokens)
        throw ConfigError("{}: the last entry of /documents must be the number of tokens, {}, but is {}",
                          raw.path(), tokens, before);
}

}  // namespace

TokenFile::Layout hdf5_layout(const std::string& path) {
    const RawFile raw = RawFile::open(path);
    const hdf5::File file = hdf5::File::open(path);
    if (is_encoded_file(path))
        throw ConfigError(
            "{} has encoded images, which a language model cannot read; its data are text or token files",
            path);
    const auto find = [&](const char* name, std::initializer_list<hdf5::Type> types, const char* as) {
        const hdf5::Dataset array = file.dataset(name);
        const int64_t count = array.shape().count();
        if (array.shape().rank != 1 || std::find(types.begin(), types.end(), array.type()) == types.end())
            throw ConfigError(
                "{}: /{} must be a 1-D array of {}, but is {} {}; with h5py: f.create_dataset(\"{}\", "
                "data=...{})",
                path, name, as, array.shape().text(), hdf5::name_of(array.type()), name,
                fmt::format(".astype(\"{}\")", hdf5::name_of(*types.begin())));
        if (count == 0) throw ConfigError("{}: /{} is empty", path, name);
        const auto offset = array.offset();
        if (!offset)
            throw ConfigError(
                "{}: /{} must be contiguous, without chunks or compression, so that it can be memory-mapped; "
                "with h5py: f.create_dataset(\"{}\", data=...) without further options",
                path, name, name);
        const auto width = hdf5::size_of(array.type());
        if (*offset + count * width > raw.size())
            throw ConfigError("{} is truncated: /{} extends past the end of the file", path, name);
        return TokenFile::Place{.offset = *offset, .count = count, .width = width};
    };
    TokenFile::Layout layout = {.format = "HDF5"};
    layout.tokens = find("tokens", {hdf5::Type::u16, hdf5::Type::u32}, "uint16 or uint32");
    if (file.has("documents")) {
        layout.documents = find("documents", {hdf5::Type::u64, hdf5::Type::i64}, "uint64");
        check_documents(raw, layout.documents, layout.tokens.count);
    }
    if (file.has("loss_mask")) {
        layout.mask = find("loss_mask", {hdf5::Type::u8}, "uint8");
        if (layout.mask.count != layout.tokens.count)
            throw ConfigError("{}: /loss_mask has {} entries for {} tokens, but must have one per token",
                              path, layout.mask.count, layout.tokens.count);
    }
    if (file.has_attribute("tokenizer")) layout.tokenizer_hash = file.string_attribute("tokenizer");
    if (file.has_attribute("document_bytes")) layout.document_bytes = file.int_attribute("document_bytes");
    if (file.has_attribute("max_token")) layout.max_token = file.int_attribute("max_token");
    return layout;
}

}  // namespace coeus
