// SPDX-License-Identifier: Apache-2.0
// The number of tokens is known only at the end, but a contiguous array needs it at the beginning: tokens go
// to a plain file first, then into the HDF5 file.
#include "coeus/data/tokenize.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/hdf5.hpp"
#include "parallel.hpp"

#include <unistd.h>

#include <algorithm>

namespace coeus {

namespace fs = std::filesystem;

namespace {

// A file that is removed at the end.
struct TemporaryFile {
    fs::path path;
    ~TemporaryFile() {
        std::error_code ignored;
        fs::remove(path, ignored);
    }
};

// Appends tokens to a plain file as 16- or 32-bit numbers.
class TokenWriter {
public:
    TokenWriter(const fs::path& path, bool wide) : file_(RawFile::create(path.string())), wide_(wide) {}

    void append(const std::vector<int32_t>& ids) {
        bytes_.clear();
        for (const int32_t id : ids) {
            max_token_ = std::max(max_token_, id);
            const auto bits = uint32_t(id);
            for (int b = 0; b < width(); ++b) bytes_.push_back(std::byte(bits >> (8 * b)));
        }
        file_.write(bytes_.data(), int64_t(bytes_.size()), count_ * width());
        count_ += int64_t(ids.size());
    }

    int width() const { return wide_ ? 4 : 2; }
    int64_t count() const { return count_; }
    int64_t max_token() const { return max_token_; }

    template <class T>
    void copy_to(hdf5::Dataset& array) const {
        std::vector<T> part(1 << 22);
        for (int64_t at = 0; at < count_; at += int64_t(part.size())) {
            part.resize(size_t(std::min(count_ - at, int64_t(part.size()))));
            file_.read(part.data(), int64_t(part.size() * sizeof(T)), at * int64_t(sizeof(T)));
            array.write(std::span<const T>(part), at);
        }
    }
    void copy(hdf5::Dataset& array) const { wide_ ? copy_to<uint32_t>(array) : copy_to<uint16_t>(array); }

private:
    RawFile file_;
    bool wide_;
    std::vector<std::byte> bytes_;
    int64_t count_ = 0;
    int32_t max_token_ = 0;
};

// What one passage gave.
struct Encoded {
    std::vector<int32_t> ids;
    std::vector<int64_t> documents;  // where documents begin in ids
    size_t reached = 0;              // in the document
};

class PassageEncoder {
public:
    explicit PassageEncoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer), encoder_(tokenizer) {}

    Encoded encode(const Passage& passage) {
        Encoded out;
        if (passage.json_lines)
            each_json_text(passage, [&](std::string_view text) {
                if (text.empty()) return;
                begin_document(out);
                encoder_.encode(text, out.ids);
                end_document(out);
            });
        else if (tokenizer_->can_encode_parts())
            encode_from(passage, passage.begin, out);
        else if (passage.begins_document())
            encode_whole(passage, out);
        return out;
    }

    /// A passage of a document whose pieces begin at `from`.
    void encode_from(const Passage& passage, size_t from, Encoded& out) {
        if (passage.begins_document()) begin_document(out);
        out.reached =
            from < passage.end ? encoder_.encode_part(passage.document, from, passage.end, out.ids) : from;
        if (passage.ends_document()) end_document(out);
    }

private:
    // The expression cannot resume in the middle: all of the document belongs to its first passage.
    void encode_whole(const Passage& passage, Encoded& out) {
        begin_document(out);
        encoder_.encode(passage.document, out.ids);
        end_document(out);
    }
    void begin_document(Encoded& out) const {
        out.documents.push_back(int64_t(out.ids.size()));
        append(tokenizer_->document_ends().before, out);
    }
    void end_document(Encoded& out) const { append(tokenizer_->document_ends().after, out); }
    static void append(const std::vector<int32_t>& ids, Encoded& out) {
        out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    }

    const Tokenizer* tokenizer_;
    Tokenizer::Encoder encoder_;
};

std::string content_of(const Corpus& corpus, const Tokenizer& tokenizer) {
    return hash_text(hash_of("tokens 1 " + tokenizer.hash() + " " + hash_text(corpus.content_hash())));
}

// What the file holds where it was made of this content; nothing where it must be made.
std::optional<Tokenized> finished(const fs::path& output, const std::string& content) {
    if (!fs::exists(output)) return std::nullopt;
    if (!is_token_file(output))
        throw ConfigError(
            "{} is in the way: it exists and is no token file; choose another name or remove it",
            output.string());
    const hdf5::File file = hdf5::File::open(output.string());
    if (!file.has("tokens"))
        throw ConfigError(
            "{} is in the way: it is an HDF5 file but no token file; choose another name or remove it",
            output.string());
    if (!file.has_attribute("content") || file.string_attribute("content") != content) return std::nullopt;
    return Tokenized{file.int_attribute("num_tokens"), file.int_attribute("num_documents"), true};
}

void write_hdf5(const fs::path& path, const TokenWriter& tokens, std::vector<uint64_t> documents,
                const Corpus& corpus, const Tokenizer& tokenizer, const std::string& content) {
    auto file = hdf5::File::create(path.string());
    file.set_attribute("tokenizer", tokenizer.hash());
    file.set_attribute("source", corpus.source());
    file.set_attribute("content", content);
    file.set_attribute("num_tokens", tokens.count());
    file.set_attribute("num_documents", documents.size());
    file.set_attribute("vocab_size", tokenizer.vocab_size());
    file.set_attribute("max_token", tokens.max_token());
    file.set_attribute("bos_id", tokenizer.bos_id().value_or(-1));
    file.set_attribute("eos_id", tokenizer.eos_id().value_or(-1));
    {
        auto array = file.create_dataset("tokens", tokens.width() == 4 ? hdf5::Type::u32 : hdf5::Type::u16,
                                         {tokens.count()});
        tokens.copy(array);
        documents.push_back(uint64_t(tokens.count()));
        auto offsets = file.create_dataset("documents", hdf5::Type::u64, {int64_t(documents.size())});
        offsets.write(std::span<const uint64_t>(documents));
    }
    file.close();
    RawFile::open_for_update(path.string()).sync();
}

// Tokens of the whole corpus in order; returns where documents begin.
std::vector<uint64_t> encode(const Corpus& corpus, const Tokenizer& tokenizer, int threads,
                             TokenWriter& writer) {
    std::vector<uint64_t> documents;
    Progress progress("tokenizing", corpus.bytes(), true);
    int64_t bytes_done = 0;
    PassageEncoder own_encoder(tokenizer);
    const int64_t replaced = corpus.read([&](const std::vector<Passage>& passages) {
        size_t reached = 0;  // in the document of the passage before
        in_order(
            int64_t(passages.size()), threads, [&] { return PassageEncoder(tokenizer); },
            [&](PassageEncoder& encoder, int64_t i) { return encoder.encode(passages[size_t(i)]); },
            [&](int64_t i, Encoded encoded) {
                const Passage& passage = passages[size_t(i)];
                // A cut that was no end of a piece after all: this passage begins where the last one ended.
                const bool cut_text = !passage.json_lines && tokenizer.can_encode_parts();
                if (cut_text && !passage.begins_document() && reached != passage.begin) {
                    encoded = {};
                    own_encoder.encode_from(passage, reached, encoded);
                }
                reached = encoded.reached;
                for (const int64_t begin : encoded.documents)
                    documents.push_back(uint64_t(writer.count() + begin));
                writer.append(encoded.ids);
                progress.update(bytes_done += int64_t(passage.end - passage.begin));
            });
    });
    if (replaced > 0)
        log::warn("{}: {} invalid bytes or sequences were replaced by U+FFFD: the text is not UTF-8",
                  corpus.source(), with_commas(replaced));
    if (writer.count() == 0) throw ConfigError("{}: there is no text in it", corpus.source());
    return documents;
}

Tokenized make(const Corpus& corpus, const Tokenizer& tokenizer, const fs::path& output, int threads,
               const std::string& content) {
    if (const auto done = finished(output, content)) return *done;
    const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) throw ConfigError("{}: cannot make this folder: {}", folder.string(), failed.message());

    // two runs may make the same file at once: each has its own parts, the last rename stays
    const std::string own = fmt::format("{}.{}", output.string(), getpid());
    const TemporaryFile plain{own + ".tokens.part"}, part{own + ".part"};
    TokenWriter writer(plain.path, tokenizer.vocab_size() > 65536);
    const auto documents = encode(corpus, tokenizer, threads > 0 ? threads : hardware_threads(), writer);
    write_hdf5(part.path, writer, documents, corpus, tokenizer, content);
    publish_file(part.path.string(), output.string());
    return {writer.count(), int64_t(documents.size()), false};
}

}  // namespace

std::string Tokenized::text() const {
    return fmt::format("{} tokens in {} {}", with_commas(tokens), with_commas(documents),
                       documents == 1 ? "document" : "documents");
}

Tokenized tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const fs::path& output, int threads) {
    return make(corpus, tokenizer, output, threads, content_of(corpus, tokenizer));
}

fs::path tokenized(const std::vector<fs::path>& inputs, const Tokenizer& tokenizer,
                   const fs::path& cache_folder, int threads) {
    const Corpus corpus(inputs);
    const std::string content = content_of(corpus, tokenizer);
    fs::path file = cache_folder / fmt::format("{}-{}.h5", inputs[0].stem().string(), content);
    const Timer timer;
    const Tokenized done = make(corpus, tokenizer, file, threads, content);
    log::info("{}: {}, {}", corpus.source(), done.text(),
              done.up_to_date ? "tokenized before: " + file.string()
                              : "tokenized in " + duration_text(timer.seconds()));
    return file;
}

}  // namespace coeus
