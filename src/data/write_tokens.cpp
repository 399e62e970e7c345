// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/write_tokens.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/hdf5/hdf5.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

namespace coeus {

namespace {

constexpr int64_t piece = 1 << 20;                // elements at a time
constexpr int64_t beyond_ids = int64_t(1) << 31;  // a vocabulary that only negative ids exceed

// Files that are renamed to their names when all of them are complete, and removed otherwise.
class Unfinished {
public:
    explicit Unfinished(std::vector<std::string> names) : names_(std::move(names)) {}
    ~Unfinished() {
        std::error_code ignored;
        for (const std::string& name : names_) std::filesystem::remove(part(name), ignored);
    }
    Unfinished(const Unfinished&) = delete;
    Unfinished& operator=(const Unfinished&) = delete;

    static std::string part(const std::string& name) { return name + ".part"; }
    void publish() const {
        for (const std::string& name : names_) publish_file(part(name), name);
    }

private:
    std::vector<std::string> names_;
};

template <class T, class Write>
void each_piece(const TokenFile& from, const TokensWritten& written, const Write& write) {
    std::vector<int32_t> ids;
    std::vector<T> out;
    for (int64_t at = 0; at < from.num_tokens(); at += piece) {
        ids.resize(size_t(std::min(piece, from.num_tokens() - at)));
        from.read(at, ids);
        out.assign(ids.begin(), ids.end());
        write(std::span<const T>(out), at);
        written(at + int64_t(ids.size()));
    }
}

// Calls write(bounds, number of the first) for all documents and the total, a few at a time.
template <class Write>
void each_bound(const TokenFile& from, const Write& write) {
    const int64_t documents = from.num_documents();
    const int64_t at_a_time = from.layout().separator ? documents : piece;  // the tokens are read once
    for (int64_t d = 0; d < documents; d += at_a_time) {
        const int64_t last = std::min(documents, d + at_a_time) - 1;
        std::vector<int64_t> bounds = from.document_bounds(d, last);
        if (last + 1 < documents) bounds.pop_back();
        write(std::span<const int64_t>(bounds), d);
    }
}

template <class T>
void write_ids(hdf5::File& file, const TokenFile& from, hdf5::Type type, const TokensWritten& written) {
    hdf5::Dataset tokens = file.create_dataset("tokens", type, {from.num_tokens()});
    each_piece<T>(from, written, [&](std::span<const T> ids, int64_t at) { tokens.write(ids, at); });
}

// Appends numbers to a file.
class NumbersFile {
public:
    explicit NumbersFile(const std::string& path) : file_(RawFile::create(path)) {}
    template <class T>
    void add(std::span<const T> values) {
        file_.write(values.data(), int64_t(values.size_bytes()), bytes_);
        bytes_ += int64_t(values.size_bytes());
    }
    template <class T>
    void add_one(T value) {
        add(std::span<const T>(&value, 1));
    }
    void sync() { file_.sync(); }

private:
    RawFile file_;
    int64_t bytes_ = 0;
};

}  // namespace

void write_hdf5_tokens(TokenFile& from, const std::string& to, const Tokenizer* tokenizer,
                       const TokensWritten& written) {
    from.check_vocabulary(beyond_ids);
    if (tokenizer && from.max_token() >= tokenizer->vocab_size())
        throw ConfigError("{}: has the id {}, but the tokenizer in {} has {} tokens: another one made it",
                          from.path(), from.max_token(), tokenizer->folder(), tokenizer->vocab_size());
    const Unfinished target({to});
    auto file = hdf5::File::create(Unfinished::part(to));
    if (tokenizer) {
        file.set_attribute("tokenizer", tokenizer->hash());
        file.set_attribute("vocab_size", tokenizer->vocab_size());
        file.set_attribute("bos_id", tokenizer->bos_id().value_or(-1));
        file.set_attribute("eos_id", tokenizer->eos_id().value_or(-1));
    } else if (!from.tokenizer_hash().empty()) {
        file.set_attribute("tokenizer", from.tokenizer_hash());
    }
    file.set_attribute("source", std::filesystem::path(from.path()).filename().string());
    file.set_attribute("num_tokens", from.num_tokens());
    file.set_attribute("num_documents", from.num_documents());
    if (from.document_bytes() > 0) file.set_attribute("document_bytes", from.document_bytes());
    file.set_attribute("max_token", from.max_token());
    if (from.max_token() < 65536)
        write_ids<uint16_t>(file, from, hdf5::Type::u16, written);
    else
        write_ids<uint32_t>(file, from, hdf5::Type::u32, written);
    if (from.num_documents() > 1 || from.lists_documents()) {
        hdf5::Dataset documents =
            file.create_dataset("documents", hdf5::Type::u64, {from.num_documents() + 1});
        each_bound(from, [&](std::span<const int64_t> bounds, int64_t first) {
            const std::vector<uint64_t> out(bounds.begin(), bounds.end());
            documents.write(std::span<const uint64_t>(out), first);
        });
    }
    file.close();
    RawFile::open_for_update(Unfinished::part(to)).sync();
    target.publish();
}

void write_megatron_pair(TokenFile& from, const std::string& index, const TokensWritten& written) {
    if (from.has_loss_mask())
        throw ConfigError(
            "{}: has a loss mask, for which a pair of Megatron-LM has no place: all tokens would be labels",
            from.path());
    from.check_vocabulary(beyond_ids);
    constexpr int64_t largest_of_16_bits = 65500;  // as Megatron-LM chooses
    const bool narrow = from.max_token() < largest_of_16_bits;
    const int64_t width = narrow ? 2 : 4, documents = from.num_documents();
    const std::string data = std::filesystem::path(index).replace_extension(".bin").string();
    const Unfinished target({data, index});
    {
        NumbersFile ids(Unfinished::part(data)), out(Unfinished::part(index));
        out.add(std::span<const char>("MMIDIDX\0\0", 9));
        out.add_one<uint64_t>(1);
        out.add_one<uint8_t>(narrow ? 8 : 4);
        out.add_one<uint64_t>(uint64_t(documents));
        out.add_one<uint64_t>(uint64_t(documents + 1));
        int64_t before = 0;
        each_bound(from, [&](std::span<const int64_t> bounds, int64_t first) {
            std::vector<int32_t> lengths;
            for (size_t i = 0; i < bounds.size(); ++i) {
                if (first == 0 && i == 0) continue;
                if (bounds[i] - before > INT32_MAX)
                    throw ConfigError("{}: document {} has {} tokens, more than the 2^31 - 1 of a sequence",
                                      from.path(), first + int64_t(i) - 1, with_commas(bounds[i] - before));
                lengths.push_back(int32_t(bounds[i] - before));
                before = bounds[i];
            }
            out.add(std::span<const int32_t>(lengths));
        });
        each_bound(from, [&](std::span<const int64_t> bounds, int64_t first) {
            std::vector<int64_t> offsets;
            for (size_t i = 0; i < bounds.size() && first + int64_t(i) < documents; ++i)
                offsets.push_back(bounds[i] * width);
            out.add(std::span<const int64_t>(offsets));
        });
        for (int64_t d = 0; d <= documents; d += piece) {
            std::vector<int64_t> bounds;
            for (int64_t i = d; i <= std::min(documents, d + piece - 1); ++i) bounds.push_back(i);
            out.add(std::span<const int64_t>(bounds));
        }
        if (narrow)
            each_piece<uint16_t>(from, written, [&](auto values, int64_t) { ids.add(values); });
        else
            each_piece<int32_t>(from, written, [&](auto values, int64_t) { ids.add(values); });
        ids.sync();
        out.sync();
    }
    target.publish();
}

}  // namespace coeus
