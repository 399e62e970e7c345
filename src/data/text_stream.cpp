// SPDX-License-Identifier: Apache-2.0
#include "text_stream.hpp"

#include "coeus/base/error.hpp"
#include "utf8.hpp"

#include <algorithm>

namespace coeus {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view replacement = "\xEF\xBF\xBD"sv;

// Bytes at the end that may become a character with those that follow.
size_t unfinished(std::string_view text) {
    for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
        const std::string_view tail = text.substr(text.size() - bytes);
        if (uint8_t(tail[0]) >= 0xc0) return incomplete_utf8(tail) ? bytes : 0;
    }
    return 0;
}

bool has_multibyte(std::string_view text) {
    const auto high = [](char c) { return uint8_t(c) >= 0x80; };
    for (auto at = text.begin(); (at = std::find_if(at, text.end(), high)) != text.end();
         at += std::ptrdiff_t(replacement.size()))
        if (!text.substr(size_t(at - text.begin())).starts_with(replacement)) return true;
    return false;
}

}  // namespace

TextStream::TextStream(const std::string& path) : path_(path), bytes_(open_stream(path)) {}

void TextStream::check_beginning() {
    const std::string_view begin = raw_;
    const auto refuse = [&](const char* encoding) {
        throw ConfigError("{}: is {}, as its byte order mark says; convert it with iconv -f {} -t UTF-8",
                          path_, encoding, encoding);
    };
    if (begin.starts_with("\xFF\xFE\0\0"sv) || begin.starts_with("\0\0\xFE\xFF"sv)) refuse("UTF-32");
    if (begin.starts_with("\xFF\xFE"sv) || begin.starts_with("\xFE\xFF"sv)) refuse("UTF-16");
    if (begin.substr(0, 4096).find('\0') != std::string_view::npos)
        throw ConfigError(
            "{}: contains NUL bytes, so it is no text (or UTF-16 without a mark: iconv -f UTF-16LE -t UTF-8)",
            path_);
    if (begin.starts_with("\xEF\xBB\xBF"sv)) raw_.erase(0, 3);
}

void TextStream::append(std::string& text, size_t bytes) {
    const size_t before = text.size();
    while (!at_end_ && text.size() == before) {
        const size_t kept = raw_.size();
        raw_.resize(kept + std::max<size_t>(bytes, 4096));
        // a decompressor may give little at a time: the beginning is looked at as a whole
        size_t got = kept, more = 1;
        while (got < raw_.size() && more > 0)
            got += more = bytes_->read(raw_.data() + got, raw_.size() - got);
        raw_.resize(got);
        at_end_ = more == 0;
        if (!begun_) check_beginning();
        begun_ = true;

        const size_t held = at_end_ ? 0 : unfinished(raw_);
        const std::string_view ready(raw_.data(), raw_.size() - held);
        const size_t from = text.size();
        if (valid_utf8_prefix(ready) == ready.size())
            text.append(ready);
        else
            text.append(repaired_utf8(ready, replaced_));
        multibyte_ = multibyte_ || has_multibyte(std::string_view(text).substr(from));
        raw_.erase(0, ready.size());
    }
}

}  // namespace coeus
