// SPDX-License-Identifier: Apache-2.0
// In both formats a file may have several members (frames) in a row: concatenation and parallel compressors
// make such files.
#include "coeus/file/byte_stream.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/file/raw_file.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>
#include <zlib.h>
#include <zstd.h>

namespace coeus {

using namespace std::string_view_literals;

namespace {

constexpr std::string_view begin_of_parquet = "PAR1";

bool ends_with(const std::string& path, std::string_view ending) {
    if (path.size() < ending.size()) return false;
    return std::equal(ending.begin(), ending.end(), path.end() - std::ptrdiff_t(ending.size()),
                      [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? char(b - 'A' + 'a') : b); });
}

class PlainStream : public ByteStream {
public:
    explicit PlainStream(const std::string& path) : file_(RawFile::open(path)), size_(file_.size()) {}

    size_t read(char* to, size_t size) override {
        const auto bytes = std::min(int64_t(size), size_ - position_);
        file_.read(to, bytes, position_);
        position_ += bytes;
        return size_t(bytes);
    }
    int64_t position() const override { return position_; }
    const std::string& path() const { return file_.path(); }

private:
    RawFile file_;
    int64_t size_, position_ = 0;
};

// The compressed bytes that a decompressor has not taken yet.
class Input {
public:
    explicit Input(const std::string& path) : stream_(path), buffer_(256 << 10) {}

    /// False at the end of the file.
    bool refill() {
        begin_ = 0;
        end_ = stream_.read(buffer_.data(), buffer_.size());
        return end_ > 0;
    }
    /// False if the file ends before so many bytes more.
    bool has(size_t bytes) {
        if (size() >= bytes) return true;
        std::copy(data(), data() + size(), buffer_.data());
        end_ = size();
        begin_ = 0;
        while (size_t more = end_ < bytes ? stream_.read(buffer_.data() + end_, buffer_.size() - end_) : 0)
            end_ += more;
        return size() >= bytes;
    }
    bool empty() const { return begin_ == end_; }
    char* data() { return buffer_.data() + begin_; }
    size_t size() const { return end_ - begin_; }
    void take(size_t bytes) { begin_ += bytes; }
    int64_t position() const { return stream_.position() - int64_t(size()); }
    const std::string& path() const { return stream_.path(); }

    [[noreturn]] void truncated(const char* format) const {
        throw ConfigError(
            "{} is truncated: its {} data is incomplete, at byte {}; download or compress it again", path(),
            format, position());
    }
    [[noreturn]] void damaged(const char* format, const char* reason) const {
        throw ConfigError("{} is damaged near byte {}: {} ({}); download or compress it again", path(),
                          position(), reason, format);
    }
    [[noreturn]] void foreign(const char* format) const {
        throw ConfigError("{} is not {} data, although its name says so", path(), format);
    }

private:
    PlainStream stream_;
    std::vector<char> buffer_;
    size_t begin_ = 0, end_ = 0;
};

class GzipStream : public ByteStream {
public:
    explicit GzipStream(const std::string& path) : input_(path) {
        constexpr int gzip_only = 16 + MAX_WBITS;
        if (inflateInit2(&zlib_, gzip_only) != Z_OK) throw SystemError("zlib cannot start: out of memory");
    }
    ~GzipStream() override { inflateEnd(&zlib_); }

    size_t read(char* to, size_t size) override {
        zlib_.next_out = reinterpret_cast<Bytef*>(to);
        zlib_.avail_out = uInt(std::min<size_t>(size, 1u << 30));
        const uInt wanted = zlib_.avail_out;
        while (zlib_.avail_out == wanted) {
            if (input_.empty() && !input_.refill()) {
                if (members_ == 0 || inside_) input_.truncated("gzip");
                return 0;
            }
            if (!inside_ && !begin_member()) return 0;
            zlib_.next_in = reinterpret_cast<Bytef*>(input_.data());
            zlib_.avail_in = uInt(input_.size());
            const int result = inflate(&zlib_, Z_NO_FLUSH);
            input_.take(input_.size() - zlib_.avail_in);
            if (result == Z_STREAM_END)
                inside_ = false;
            else if (result != Z_OK && result != Z_BUF_ERROR)
                fail(result);
        }
        return wanted - zlib_.avail_out;
    }
    int64_t position() const override { return input_.position(); }
    int64_t ignored_bytes() const override { return ignored_; }

private:
    // Zeros after the last member are padding, as on tapes and in disk images. Other bytes that are not a
    // member are left out, as gzip does.
    bool begin_member() {
        if (members_ > 0)
            while (*input_.data() == 0) {
                input_.take(1);
                if (input_.empty() && !input_.refill()) return false;
            }
        if (members_ > 0 && !(input_.has(2) && std::string_view(input_.data(), 2) == "\x1F\x8B")) {
            do {
                ignored_ += int64_t(input_.size());
                input_.take(input_.size());
            } while (input_.refill());
            return false;
        }
        inside_ = true;
        ++members_;
        inflateReset(&zlib_);
        return true;
    }
    [[noreturn]] void fail(int result) const {
        if (result == Z_MEM_ERROR) throw SystemError("zlib is out of memory");
        if (members_ == 1 && zlib_.total_out == 0 && input_.position() < 18) input_.foreign("gzip");
        input_.damaged("gzip", zlib_.msg != nullptr ? zlib_.msg : "invalid data");
    }

    Input input_;
    z_stream zlib_ = {};
    int64_t members_ = 0, ignored_ = 0;
    bool inside_ = false;
};

class ZstdStream : public ByteStream {
public:
    explicit ZstdStream(const std::string& path) : input_(path), zstd_(ZSTD_createDStream()) {
        if (zstd_ == nullptr) throw SystemError("libzstd cannot start: out of memory");
        // the largest possible window, that of `zstd --long=31`
        ZSTD_DCtx_setParameter(zstd_, ZSTD_d_windowLogMax, 31);
    }
    ~ZstdStream() override { ZSTD_freeDStream(zstd_); }

    size_t read(char* to, size_t size) override {
        ZSTD_outBuffer out = {to, size, 0};
        while (out.pos == 0) {
            // if the output buffer was full, the decompressor may still have some of the text
            if (input_.empty() && !pending_ && !input_.refill()) {
                if (!begun_ || left_ != 0) input_.truncated("zstd");
                return 0;
            }
            ZSTD_inBuffer in = {input_.data(), input_.size(), 0};
            left_ = ZSTD_decompressStream(zstd_, &out, &in);
            if (ZSTD_isError(left_) != 0) {
                if (!begun_) input_.foreign("zstd");
                input_.damaged("zstd", ZSTD_getErrorName(left_));
            }
            begun_ = begun_ || in.pos > 0;
            input_.take(in.pos);
            pending_ = out.pos == out.size && left_ != 0;
        }
        return out.pos;
    }
    int64_t position() const override { return input_.position(); }

private:
    Input input_;
    ZSTD_DStream* zstd_;
    size_t left_ = 0;  // bytes left in the frame; 0: at its end
    bool begun_ = false, pending_ = false;
};

std::string first_bytes(const std::string& path) {
    std::string begin(64, '\0');
    begin.resize(PlainStream(path).read(begin.data(), begin.size()));
    return begin;
}

bool is_text(std::string_view begin) {
    const size_t valid = valid_utf8_prefix(begin);
    return (valid == begin.size() || incomplete_utf8(begin.substr(valid))) &&
           std::ranges::none_of(
               begin, [](char c) { return uint8_t(c) < 0x20 && "\t\n\r\f"sv.find(c) == "\t"sv.npos; });
}

}  // namespace

Packing packing_of_name(const std::string& path) {
    if (ends_with(path, ".gz")) return Packing::gzip;
    return ends_with(path, ".zst") || ends_with(path, ".zstd") ? Packing::zstd : Packing::none;
}

Packing packing_of(const std::string& path) {
    constexpr size_t enough = 4;  // bytes of the longest mark
    const std::string begin = first_bytes(path);
    if (begin.starts_with("\x1F\x8B\x08"sv)) return Packing::gzip;
    // a frame, or one that is skipped: 0x184D2A50 to 0x184D2A5F in little-endian order
    const bool skipped =
        begin.size() >= enough && (uint8_t(begin[0]) & 0xF0) == 0x50 && begin.substr(1, 3) == "\x2A\x4D\x18";
    if (skipped || begin.starts_with("\x28\xB5\x2F\xFD"sv)) return Packing::zstd;
    // programs that download files may unpack them and keep the name; reading other bytes says what is wrong
    return begin.size() >= enough && is_text(begin) ? Packing::none : packing_of_name(path);
}

bool is_parquet(const std::string& path) {
    return first_bytes(path).starts_with(begin_of_parquet);
}

std::optional<std::string_view> foreign_content(const std::string& path) {
    // from the formats' specifications
    static constexpr std::pair<std::string_view, std::string_view> formats[] = {
        {"BZh"sv, "bzip2 data"},
        {"\xFD"
         "7zXZ\0"sv,
         "xz data"},
        {"\x04\x22\x4D\x18"sv, "lz4 data"},
        {"PK\x03\x04"sv, "a zip file"},
        {"7z\xBC\xAF\x27\x1C"sv, "a 7z file"},
        {"Rar!\x1A\x07"sv, "a rar file"},
        {begin_of_parquet, "a Parquet file"},
        {"ARROW1"sv, "an Arrow file"},
        {"\x89HDF\r\n\x1A\n"sv, "an HDF5 file"},
        {"\x93NUMPY"sv, "a NumPy file"},
        {"%PDF-"sv, "a PDF file"},
        {"\x7F"
         "ELF"sv,
         "a program"},
        {"\x89PNG\r\n\x1A\n"sv, "a PNG picture"},
        {"\xFF\xD8\xFF"sv, "a JPEG picture"},
        {"SQLite format 3\0"sv, "an SQLite file"},
    };
    const std::string begin = first_bytes(path);
    for (const auto& [magic, content] : formats) {
        if (!begin.starts_with(magic)) continue;
        // "BZh" may begin a word: the level and the first block's mark follow
        const bool is_word =
            magic == "BZh" && begin.substr(4, 6) != "1AY&SY" && begin.substr(4, 6) != "\x17rE8P\x90";
        if (!is_word) return content;
    }
    return std::nullopt;
}

std::unique_ptr<ByteStream> open_stream(const std::string& path) {
    switch (packing_of(path)) {
        case Packing::gzip: return std::make_unique<GzipStream>(path);
        case Packing::zstd: return std::make_unique<ZstdStream>(path);
        case Packing::none: break;
    }
    return std::make_unique<PlainStream>(path);
}

}  // namespace coeus
