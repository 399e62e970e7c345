// SPDX-License-Identifier: Apache-2.0
#include "text_stream.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

namespace {

using namespace std::string_view_literals;

// Number of bytes at the end that may be the beginning of a character.
size_t unfinished(std::string_view text) {
    for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
        const std::string_view tail = text.substr(text.size() - bytes);
        if (uint8_t(tail[0]) >= 0xc0) return incomplete_utf8(tail) ? bytes : 0;
    }
    return 0;
}

}  // namespace

std::optional<WideEncoding> wide_encoding(std::string_view begin) {
    if (begin.starts_with("\xFF\xFE\0\0"sv) || begin.starts_with("\0\0\xFE\xFF"sv))
        return WideEncoding{"UTF-32", true};
    if (begin.starts_with("\xFF\xFE"sv) || begin.starts_with("\xFE\xFF"sv))
        return WideEncoding{"UTF-16", true};
    const std::string_view first = begin.substr(0, 16);
    const auto repeats = [&](std::string_view nuls) {  // 0: a NUL byte, x: another byte
        for (size_t i = 0; i < first.size(); ++i)
            if ((nuls[i % nuls.size()] == '0') != (first[i] == '\0')) return false;
        return first.size() >= nuls.size();
    };
    for (const auto& [nuls, name] :
         {std::pair("x000", "UTF-32LE"), {"000x", "UTF-32BE"}, {"x0", "UTF-16LE"}, {"0x", "UTF-16BE"}})
        if (repeats(nuls)) return WideEncoding{name, false};
    return std::nullopt;
}

TextStream::TextStream(std::unique_ptr<ByteStream> bytes, const std::string& name)
    : name_(name), bytes_(std::move(bytes)) {}

void TextStream::check_beginning() {
    const std::string_view begin = raw_;
    const auto wide = wide_encoding(begin);
    if (wide && wide->marked)
        throw ConfigError("{}: is {}, according to its byte order mark; convert it with iconv -f {} -t UTF-8",
                          name_, wide->name, wide->name);
    if (wide)
        throw ConfigError(
            "{}: is not text, or it is {} without a byte order mark (convert it with iconv -f {} -t UTF-8)",
            name_, wide->name, wide->name);
    const size_t nul = begin.substr(0, 4096).find('\0');
    if (nul != std::string_view::npos)
        throw ConfigError(
            "{}: contains NUL bytes, the first at line {}, byte {}: it is not text, or it is UTF-16 from "
            "there on (convert it with iconv -f UTF-16 -t UTF-8)",
            name_, 1 + std::count(begin.begin(), begin.begin() + std::ptrdiff_t(nul), '\n'), nul + 1);
    if (!begin.starts_with("\xEF\xBB\xBF"sv)) return;
    raw_.erase(0, 3);
    flaws_.skip(3);
}

void TextStream::append(std::string& text, size_t bytes) {
    const size_t before = text.size();
    while (!at_end_ && text.size() == before) {
        const size_t kept = raw_.size();
        raw_.resize(kept + std::max<size_t>(bytes, 4096));
        // a decompressor may return little at a time, but the beginning is checked as a whole
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
        int64_t replaced = 0;
        if (valid_utf8_prefix(ready) == ready.size())
            text.append(ready);
        else
            text.append(repaired_utf8(ready, replaced));
        flaws_.add(ready, std::string_view(text).substr(from), replaced);
        raw_.erase(0, ready.size());
    }
}

}  // namespace coeus
