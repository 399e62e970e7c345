// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/token_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "parallel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

namespace coeus {

namespace {

template <class T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

int64_t element_at(const std::byte* place, int64_t width) {
    if (width == 1) return int64_t(*place);
    if (width == 2) return load<uint16_t>(place);
    if (width == 4) return load<uint32_t>(place);
    return int64_t(load<uint64_t>(place));
}

template <class T>
int64_t maximum(const std::byte* from, int64_t count) {
    T largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, load<T>(from + i * int64_t(sizeof(T))));
    return largest;
}

}  // namespace

bool is_token_file(const std::filesystem::path& file) {
    if (std::error_code failed; status_patiently(file, failed).type() != std::filesystem::file_type::regular)
        return false;
    const RawFile opened = RawFile::open(file.string());
    char signature[8] = {};
    if (opened.size() < int64_t(sizeof signature)) return false;
    opened.read_small(signature, sizeof signature, 0);
    return std::memcmp(signature, "\x89HDF\r\n\x1a\n", sizeof signature) == 0;
}

template <class Visit>
void TokenFile::for_each_piece(const Place& array, int64_t first, int64_t count, const Visit& visit) const {
    // not a member or a vector: several threads may read, and nothing is allocated
    std::array<std::byte, 1 << 14> piece;
    const int64_t most = int64_t(piece.size()) / array.width;
    for (int64_t done = 0; done < count; done += most) {
        const int64_t now = std::min(most, count - done);
        file_.read_small(piece.data(), now * array.width, array.offset + (first + done) * array.width);
        visit(first + done, piece.data(), now);
    }
}

int64_t TokenFile::at(const Place& array, int64_t index) const {
    std::array<std::byte, 8> element = {};
    file_.read_small(element.data(), array.width, array.offset + index * array.width);
    return element_at(element.data(), array.width);
}

TokenFile::TokenFile(const std::filesystem::path& path) : file_(RawFile::open(path.string())) {
    const int64_t bytes = file_.size();
    const hdf5::File file = hdf5::File::open(path.string());
    const auto find = [&](const char* name, std::initializer_list<hdf5::Type> types, const char* as) {
        const hdf5::Dataset array = file.dataset(name);
        const int64_t count = array.shape().count();
        if (array.shape().rank != 1 || std::find(types.begin(), types.end(), array.type()) == types.end())
            throw ConfigError(
                "{}: /{} must be a 1-D array of {}, but is {} {}; with h5py: f.create_dataset(\"{}\", "
                "data=...{})",
                this->path(), name, as, array.shape().text(), hdf5::name_of(array.type()), name,
                fmt::format(".astype(\"{}\")", hdf5::name_of(*types.begin())));
        if (count == 0) throw ConfigError("{}: /{} is empty", this->path(), name);
        const auto offset = array.offset();
        if (!offset)
            throw ConfigError(
                "{}: /{} must be contiguous, without chunks or compression, so that it can be memory-mapped; "
                "with h5py: f.create_dataset(\"{}\", data=...) without further options",
                this->path(), name, name);
        const auto width = hdf5::size_of(array.type());
        if (*offset + count * width > bytes)
            throw ConfigError("{} is truncated: /{} extends past the end of the file", this->path(), name);
        return Place{.offset = *offset, .count = count, .width = width};
    };
    tokens_ = find("tokens", {hdf5::Type::u16, hdf5::Type::u32}, "uint16 or uint32");
    if (file.has("documents")) {
        documents_ = find("documents", {hdf5::Type::u64, hdf5::Type::i64}, "uint64");
        int64_t before = 0;
        const auto check = [&](int64_t first, const std::byte* offsets, int64_t count) {
            for (int64_t d = first; d < first + count; ++d) {
                const int64_t begin = element_at(offsets + (d - first) * documents_.width, documents_.width);
                if ((d == 0 && begin != 0) || begin < before || begin > tokens_.count)
                    throw ConfigError(
                        "{}: /documents[{}] is {}: offsets must ascend from 0 to the number of tokens, {}",
                        this->path(), d, begin, tokens_.count);
                before = begin;
            }
        };
        for_each_piece(documents_, 0, documents_.count, check);
        if (before != tokens_.count)
            throw ConfigError("{}: the last entry of /documents must be the number of tokens, {}, but is {}",
                              this->path(), tokens_.count, before);
    }
    if (file.has("loss_mask")) {
        mask_ = find("loss_mask", {hdf5::Type::u8}, "uint8");
        if (mask_.count != tokens_.count)
            throw ConfigError("{}: /loss_mask has {} entries for {} tokens, but must have one per token",
                              this->path(), mask_.count, tokens_.count);
    }
    if (file.has_attribute("tokenizer")) tokenizer_hash_ = file.string_attribute("tokenizer");
    if (file.has_attribute("document_bytes")) document_bytes_ = file.int_attribute("document_bytes");
    if (file.has_attribute("max_token")) max_token_ = file.int_attribute("max_token");
}

TokenFile::TokenFile(const std::filesystem::path& path, const Layout& layout)
    : file_(RawFile::open(path.string())),
      tokenizer_hash_(layout.tokenizer_hash),
      max_token_(layout.max_token) {
    const int64_t bytes = file_.size();
    for (const Place& place : {layout.tokens, layout.documents, layout.mask})
        if (place.offset + place.count * place.width > bytes)
            throw ConfigError("{} has {} bytes on this rank, fewer than on rank 0", this->path(), bytes);
    tokens_ = layout.tokens;
    documents_ = layout.documents;
    mask_ = layout.mask;
}

TokenFile::Layout TokenFile::layout() const {
    return {tokens_, documents_, mask_, tokenizer_hash_, max_token_};
}

std::string TokenFile::Layout::text() const {
    std::string numbers;
    for (const Place& place : {tokens, documents, mask})
        numbers += fmt::format("{} {} {} ", place.offset, place.count, place.width);
    return fmt::format("{}{} {}", numbers, max_token.value_or(-1), tokenizer_hash);
}

TokenFile::Layout TokenFile::Layout::of_text(const std::string& text) {
    std::istringstream in(text);
    Layout layout;
    for (Place* place : {&layout.tokens, &layout.documents, &layout.mask})
        in >> place->offset >> place->count >> place->width;
    int64_t max_token = -1;
    in >> max_token;
    if (max_token >= 0) layout.max_token = max_token;
    std::getline(in >> std::ws, layout.tokenizer_hash);
    return layout;
}

int64_t TokenFile::max_token(int threads) {
    if (!max_token_) {
        constexpr int64_t part = 1 << 22;
        int64_t largest = 0;
        in_order(
            div_ceil(tokens_.count, part), threads > 0 ? threads : hardware_threads(), [] { return 0; },
            [&](int, int64_t i) {
                const int64_t first = i * part, count = std::min(part, tokens_.count - first);
                int64_t found = 0;
                for_each_piece(tokens_, first, count, [&](int64_t, const std::byte* from, int64_t some) {
                    found = std::max(found, tokens_.width == 2 ? maximum<uint16_t>(from, some)
                                                               : maximum<uint32_t>(from, some));
                });
                return found;
            },
            [&](int64_t, int64_t found) { largest = std::max(largest, found); });
        max_token_ = largest;
    }
    return *max_token_;
}

int64_t TokenFile::first_outside(int64_t vocab_size, int64_t from) const {
    constexpr int64_t part = 1 << 16;
    int64_t found = tokens_.count;
    for (int64_t first = from; first < tokens_.count && found == tokens_.count; first += part)
        for_each_piece(tokens_, first, std::min(part, tokens_.count - first),
                       [&](int64_t begin, const std::byte* piece, int64_t some) {
                           for (int64_t i = 0; i < some && found == tokens_.count; ++i)
                               if (element_at(piece + i * tokens_.width, tokens_.width) >= vocab_size)
                                   found = begin + i;
                       });
    return found;
}

void TokenFile::check_vocabulary(int64_t vocab_size, int threads) {
    if (max_token(threads) < vocab_size) return;
    const int64_t position = first_outside(vocab_size, 0);
    if (position == tokens_.count)
        throw ConfigError("{}: the attribute max_token is {}, but no token is above {}", this->path(),
                          *max_token_, vocab_size - 1);
    throw ConfigError(
        "{}: token {} at position {} is not in the model's vocabulary of {}; model.vocab_size must be at "
        "least {}",
        path(), at(tokens_, position), position, vocab_size, *max_token_ + 1);
}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
    const auto count = int64_t(out.size());
    require(first >= 0 && first + count <= tokens_.count, "tokens must be inside the file");
    for_each_piece(tokens_, first, count, [&](int64_t begin, const std::byte* from, int64_t some) {
        for (int64_t i = 0; i < some; ++i)
            out[size_t(begin - first + i)] = int32_t(element_at(from + i * tokens_.width, tokens_.width));
    });
}

int64_t TokenFile::ignore_masked(int64_t first, std::span<int32_t> tokens, int32_t ignored) const {
    const auto count = int64_t(tokens.size());
    if (mask_.count == 0) return count;
    int64_t labels = count;
    for_each_piece(mask_, first, count, [&](int64_t begin, const std::byte* mask, int64_t some) {
        for (int64_t i = 0; i < some; ++i)
            if (mask[i] == std::byte(0)) tokens[size_t(begin - first + i)] = ignored, --labels;
    });
    return labels;
}

void TokenFile::require_in_vocabulary(int64_t first, std::span<const int32_t> tokens,
                                      int64_t vocab_size) const {
    uint32_t largest = 0;
    for (const int32_t token : tokens) largest = std::max(largest, uint32_t(token));
    if (int64_t(largest) < vocab_size) return;
    const int64_t position = first_outside(vocab_size, first);
    throw ConfigError(
        "{}: token {} at position {} is not in the model's vocabulary of {}, although the attribute "
        "max_token is {}: the file is damaged, or was changed after it was made; make it again",
        path(), at(tokens_, position), position, vocab_size, max_token_.value_or(-1));
}

int64_t TokenFile::document_begin(int64_t document) const {
    return documents_.count > 0 ? at(documents_, document) : document == 0 ? 0 : tokens_.count;
}

int64_t TokenFile::document_of(int64_t position) const {
    // documents may be empty: find the last one that begins at or before the position
    int64_t low = 0, high = num_documents();
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (document_begin(middle) <= position ? low : high) = middle;
    }
    return low;
}

}  // namespace coeus
