// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/token_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/types.hpp"
#include "elements.hpp"
#include "parallel.hpp"
#include "token_formats.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

namespace coeus {

namespace {

template <class T>
int64_t maximum(const std::byte* from, int64_t count) {
    T largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, load<T>(from + i * int64_t(sizeof(T))));
    return int64_t(std::min<uint64_t>(largest, std::numeric_limits<int64_t>::max()));
}

// The elements count as without sign, so that a negative one counts as larger than any id.
int64_t maximum(const std::byte* from, int64_t count, int64_t width) {
    if (width == 1) return maximum<uint8_t>(from, count);
    if (width == 2) return maximum<uint16_t>(from, count);
    return width == 4 ? maximum<uint32_t>(from, count) : maximum<uint64_t>(from, count);
}

// An id in 32 bits; -1, which is in no vocabulary, for what they cannot hold.
int32_t id_of(int64_t element) {
    return element == int64_t(int32_t(element)) ? int32_t(element) : -1;
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
void TokenFile::for_each_piece(const RawFile& file, const Place& array, int64_t first, int64_t count,
                               const Visit& visit) const {
    // not a member or a vector: several threads may read, and nothing is allocated
    std::array<std::byte, 1 << 14> piece;
    const int64_t most = int64_t(piece.size()) / array.width;
    for (int64_t done = 0; done < count; done += most) {
        const int64_t now = std::min(most, count - done);
        file.read_small(piece.data(), now * array.width, array.offset + (first + done) * array.width);
        visit(first + done, piece.data(), now);
    }
}

int64_t TokenFile::at(const RawFile& file, const Place& array, int64_t index) const {
    std::array<std::byte, 8> element = {};
    file.read_small(element.data(), array.width, array.offset + index * array.width);
    return element_at(element.data(), array.width);
}

TokenFile::TokenFile(const std::filesystem::path& path) : TokenFile(path, layout_of(path)) {}

TokenFile::TokenFile(const std::filesystem::path& path, Layout layout)
    : layout_(std::move(layout)), file_(RawFile::open(layout_.data.empty() ? path.string() : layout_.data)) {
    if (!layout_.index.empty()) index_ = RawFile::open(layout_.index);
    const auto require_inside = [](const RawFile& file, const Place& place) {
        if (place.offset + place.count * place.width > file.size())
            throw ConfigError("{} has {} bytes on this rank, fewer than on rank 0", file.path(), file.size());
    };
    for (const Place& place : {layout_.tokens, layout_.mask}) require_inside(file_, place);
    for (const Place& place : {layout_.documents, layout_.sequences}) require_inside(index(), place);
}

std::string TokenFile::Layout::text() const {
    std::string text;
    for (const Place& place : {tokens, documents, mask, sequences})
        text += fmt::format("{} {} {} ", place.offset, place.count, place.width);
    text += fmt::format("{} {} {} ", int(is_signed), document_bytes, max_token.value_or(-1));
    text += fmt::format("{} {} {}", separator ? separator->id : -1, separator && separator->begins ? 1 : 0,
                        separated);
    for (const std::string& line : {format, data, index, tokenizer_hash}) text += "\n" + line;
    return text;
}

TokenFile::Layout TokenFile::Layout::of_text(const std::string& text) {
    std::istringstream in(text);
    Layout layout;
    for (Place* place : {&layout.tokens, &layout.documents, &layout.mask, &layout.sequences})
        in >> place->offset >> place->count >> place->width;
    int64_t max_token = -1;
    Separator separator;
    in >> layout.is_signed >> layout.document_bytes >> max_token >> separator.id >> separator.begins >>
        layout.separated;
    if (max_token >= 0) layout.max_token = max_token;
    if (separator.id >= 0) layout.separator = separator;
    in.ignore();  // the line end
    for (std::string* line : {&layout.format, &layout.data, &layout.index, &layout.tokenizer_hash})
        std::getline(in, *line);
    return layout;
}

int64_t TokenFile::num_documents() const {
    if (lists_documents()) return layout_.documents.count - 1;
    if (!layout_.separator) return 1;
    require(layout_.separated > 0, "documents that a separator divides must be counted first");
    return layout_.separated;
}

namespace {

// The sum, or the like, of what work(first, count) returns for parts of `count` elements, with several
// threads.
template <class Work, class Join>
int64_t of_all_parts(int64_t count, int threads, const Work& work, const Join& join) {
    constexpr int64_t part = 1 << 22;
    int64_t result = 0;
    in_order(
        div_ceil(count, part), threads > 0 ? threads : hardware_threads(), [] { return 0; },
        [&](int, int64_t i) { return work(i * part, std::min(part, count - i * part)); },
        [&](int64_t, int64_t found) { result = join(result, found); });
    return result;
}

}  // namespace

int64_t TokenFile::max_token(int threads) {
    if (!layout_.max_token) {
        const Place& tokens = layout_.tokens;
        const auto largest = [](int64_t a, int64_t b) { return std::max(a, b); };
        layout_.max_token = of_all_parts(
            tokens.count, threads,
            [&](int64_t first, int64_t count) {
                int64_t found = 0;
                for_each_piece(file_, tokens, first, count,
                               [&](int64_t, const std::byte* from, int64_t some) {
                                   found = std::max(found, maximum(from, some, tokens.width));
                               });
                return found;
            },
            largest);
    }
    return *layout_.max_token;
}

int64_t TokenFile::first_outside(int64_t vocab_size, int64_t from) const {
    constexpr int64_t part = 1 << 16;
    const Place& tokens = layout_.tokens;
    int64_t found = tokens.count;
    for (int64_t first = from; first < tokens.count && found == tokens.count; first += part)
        for_each_piece(file_, tokens, first, std::min(part, tokens.count - first),
                       [&](int64_t begin, const std::byte* piece, int64_t some) {
                           for (int64_t i = 0; i < some && found == tokens.count; ++i) {
                               const int64_t id = element_at(piece + i * tokens.width, tokens.width);
                               if (id < 0 || id >= vocab_size) found = begin + i;
                           }
                       });
    return found;
}

void TokenFile::check_vocabulary(int64_t vocab_size, int threads) {
    if (max_token(threads) < vocab_size) return;
    const int64_t position = first_outside(vocab_size, 0);
    if (position == num_tokens())
        throw ConfigError("{}: the attribute max_token is {}, but no token is above {}", this->path(),
                          *layout_.max_token, vocab_size - 1);
    require_not_negative(position);
    throw ConfigError(
        "{}: token {} at position {} is not in the model's vocabulary of {}; model.vocab_size must be at "
        "least {}",
        path(), at(file_, layout_.tokens, position), position, vocab_size, *layout_.max_token + 1);
}

void TokenFile::require_not_negative(int64_t position) const {
    int64_t id = at(file_, layout_.tokens, position);
    if (layout_.is_signed && layout_.tokens.width == 4) id = int32_t(id);
    if (id < 0)
        throw ConfigError("{}: token {} at position {} is negative, which no id is", path(), id, position);
}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
    const auto count = int64_t(out.size());
    require(first >= 0 && first + count <= num_tokens(), "tokens must be inside the file");
    const int64_t width = layout_.tokens.width;
    for_each_piece(file_, layout_.tokens, first, count,
                   [&](int64_t begin, const std::byte* from, int64_t some) {
                       for (int64_t i = 0; i < some; ++i)
                           out[size_t(begin - first + i)] = id_of(element_at(from + i * width, width));
                   });
}

int64_t TokenFile::ignore_masked(int64_t first, std::span<int32_t> tokens, int32_t ignored) const {
    const auto count = int64_t(tokens.size());
    if (!has_loss_mask()) return count;
    int64_t labels = count;
    for_each_piece(file_, layout_.mask, first, count,
                   [&](int64_t begin, const std::byte* mask, int64_t some) {
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
    require_not_negative(position);
    throw ConfigError(
        "{}: token {} at position {} is not in the model's vocabulary of {}, although the attribute "
        "max_token is {}: the file is damaged, or was changed after it was made; make it again",
        path(), at(file_, layout_.tokens, position), position, vocab_size, layout_.max_token.value_or(-1));
}

template <class Visit>
void TokenFile::for_each_border(int64_t first, int64_t last, const Visit& visit) const {
    const Separator& separator = *layout_.separator;
    const int64_t from = separator.begins ? first : first - 1, width = layout_.tokens.width;
    bool more = true;
    for (int64_t begin = std::max<int64_t>(0, from); more && begin < last; begin += 1 << 16)
        for_each_piece(file_, layout_.tokens, begin, std::min<int64_t>(1 << 16, last - begin),
                       [&](int64_t at, const std::byte* piece, int64_t some) {
                           for (int64_t i = 0; i < some && more; ++i) {
                               if (element_at(piece + i * width, width) != separator.id) continue;
                               const int64_t border = at + i + (separator.begins ? 0 : 1);
                               if (border >= std::max<int64_t>(1, first) && border < last)
                                   more = visit(border);
                           }
                       });
}

void TokenFile::divide_at(const Separator& separator) {
    require(!lists_documents(), "a list of documents has precedence");
    layout_.separator = separator;
    layout_.separated = 0;
}

void TokenFile::count_documents(int threads) {
    if (!layout_.separator) return;
    const auto borders_in = [&](int64_t first, int64_t count) {
        int64_t borders = 0;
        for_each_border(first, first + count, [&](int64_t) {
            ++borders;
            return true;
        });
        return borders;
    };
    layout_.separated =
        1 + of_all_parts(num_tokens(), threads, borders_in, [](int64_t a, int64_t b) { return a + b; });
}

int64_t TokenFile::document_begin(int64_t document) const {
    if (layout_.separator && document > 0) {
        int64_t left = document, begin = num_tokens();
        for_each_border(0, num_tokens(), [&](int64_t border) {
            if (--left == 0) begin = border;
            return left > 0;
        });
        return begin;
    }
    if (!lists_documents()) return document == 0 ? 0 : num_tokens();
    const int64_t begin = at(index(), layout_.documents, document);
    if (layout_.sequences.count == 0) return begin;
    return begin == layout_.sequences.count ? num_tokens()
                                            : at(index(), layout_.sequences, begin) / layout_.tokens.width;
}

std::vector<int64_t> TokenFile::document_bounds(int64_t first, int64_t last) const {
    std::vector<int64_t> bounds;
    bounds.reserve(size_t(last - first + 2));
    if (!layout_.separator) {
        for (int64_t d = first; d <= last + 1; ++d) bounds.push_back(document_begin(d));
        return bounds;
    }
    if (first == 0) bounds.push_back(0);
    int64_t document = 0;
    for_each_border(0, num_tokens(), [&](int64_t border) {
        if (++document >= first) bounds.push_back(border);
        return document <= last;
    });
    if (document <= last) bounds.push_back(num_tokens());
    return bounds;
}

int64_t TokenFile::document_of(int64_t position) const {
    if (layout_.separator) {
        int64_t document = 0;
        for_each_border(0, position + 1, [&](int64_t) {
            ++document;
            return true;
        });
        return document;
    }
    // documents may be empty: find the last one that begins at or before the position
    int64_t low = 0, high = num_documents();
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (document_begin(middle) <= position ? low : high) = middle;
    }
    return low;
}

void TokenFile::document_starts(int64_t first, std::span<int32_t> out) const {
    const auto count = int64_t(out.size());
    if (!lists_documents()) {
        std::ranges::fill(out, 0);
        if (layout_.separator)
            for_each_border(first, first + count, [&](int64_t border) {
                std::fill(out.begin() + (border - first), out.end(), int32_t(border - first));
                return true;
            });
        return;
    }
    int64_t document = document_of(first), start = 0;
    const int64_t documents = num_documents();
    int64_t end = document_begin(document + 1);
    for (int64_t t = 0; t < count; ++t) {
        while (document + 1 < documents && end <= first + t) {
            start = std::max<int64_t>(0, end - first);
            ++document;
            end = document_begin(document + 1);
        }
        out[size_t(t)] = int32_t(start);
    }
}

}  // namespace coeus
