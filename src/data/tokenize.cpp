// SPDX-License-Identifier: Apache-2.0
// A contiguous array in an HDF5 file needs the number of tokens at the beginning, but it is known only at the
// end. Therefore, tokens and documents are first written to plain files, then copied to the HDF5 file. After
// each block, the plain files are complete up to a position in the corpus. This position is saved in
// .resume.json from time to time, and an interrupted run resumes there.
#include "coeus/data/tokenize.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/stop_signals.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/file/file_lock.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/file/json.hpp"
#include "parallel.hpp"
#include "spool.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>

namespace coeus {

namespace fs = std::filesystem;

namespace {

constexpr int64_t much_text = int64_t(10) << 30;

// The temporary files next to the output while it is made.
struct Parts {
    fs::path tokens, documents, resume, part;

    Parts(const fs::path& output, bool alone) {
        // without a lock, two runs may make the same file at the same time: each uses its own temporary
        // files, and the last rename wins
        const std::string own = alone ? output.string() : fmt::format("{}.{}", output.string(), getpid());
        tokens = own + ".tokens.part";
        documents = own + ".documents.part";
        resume = own + ".resume.json";
        part = own + ".part";
    }
    void remove() const {
        std::error_code ignored;
        for (const fs::path& path : {resume, fs::path(resume.string() + ".part"), tokens, documents, part})
            fs::remove(path, ignored);
    }
    // Removes the files that the next run cannot use to resume.
    void remove_useless() const {
        std::error_code ignored;
        if (!exists_patiently(resume)) return remove();
        fs::remove(part, ignored);
        fs::remove(resume.string() + ".part", ignored);
    }
};

// Progress of a run, saved in .resume.json.
struct State {
    int64_t tokens = 0, documents = 0, max_token = 0;
    // How far file number next.file is encoded, as an offset in its text. The last piece may end after
    // next.offset.
    int64_t reached = 0;
    int64_t document_bytes = 0;  // below 0: an earlier version began, which did not count them
    CorpusPosition next;
    CorpusReport report;  // on files; without flaws of lines
    JsonFlaws lines;

    Json json(const std::string& content) const {
        Json all = Json::object();
        all.set("content", content).set("tokens", tokens).set("documents", documents);
        all.set("max_token", max_token).set("reached", reached).set("document_bytes", document_bytes);
        all.set("file", next.file).set("offset", next.offset).set("number", next.number);
        all.set("text_bytes", report.text_bytes).set("replaced", report.replaced);
        all.set("nuls", report.nuls).set("flawed_files", report.flawed_files);
        all.set("worst_file", report.worst_file).set("worst_flaws", report.worst_flaws);
        all.set("worst_place", report.worst_place);
        all.set("ignored_bytes", report.ignored_bytes).set("first_ignored", report.first_ignored);
        all.set("object_surrogates", report.json.lone_surrogates);
        all.set("lone_surrogates", lines.lone_surrogates);
        all.set("bad_lines", lines.bad_lines).set("first_bad", lines.first_bad);
        return all;
    }

    // The progress of an earlier run; the beginning if there was none, or if it had other text or another
    // tokenizer.
    static State read(const Parts& parts, const std::string& content, int64_t token_bytes) {
        if (!exists_patiently(parts.resume)) return {};
        try {
            const JsonDocument document = JsonDocument::read(parts.resume);
            const JsonView all = document.root();
            State state;
            state.tokens = all.integer("tokens");
            state.documents = all.integer("documents");
            state.max_token = all.integer("max_token");
            state.reached = all.integer("reached");
            state.document_bytes = all.integer("document_bytes", -1);
            state.next = {all.integer("file"), all.integer("offset"), all.integer("number")};
            state.report = {.text_bytes = all.integer("text_bytes"),
                            .replaced = all.integer("replaced"),
                            .nuls = all.integer("nuls"),
                            .flawed_files = all.integer("flawed_files"),
                            .worst_file = all.string("worst_file"),
                            .worst_flaws = all.integer("worst_flaws"),
                            .worst_place = all.string("worst_place"),
                            .ignored_bytes = all.integer("ignored_bytes", 0),
                            .first_ignored = all.string("first_ignored", ""),
                            .json = {.lone_surrogates = all.integer("object_surrogates", 0)}};
            state.lines = {.lone_surrogates = all.integer("lone_surrogates", 0),
                           .bad_lines = all.integer("bad_lines", 0),
                           .first_bad = all.string("first_bad", "")};
            const auto has = [](const fs::path& path, int64_t bytes) {
                return exists_patiently(path) && size_patiently(path) >= bytes;
            };
            if (all.string("content") == content && has(parts.tokens, state.tokens * token_bytes) &&
                has(parts.documents, state.documents * int64_t(sizeof(uint64_t))))
                return state;
        } catch (const PermissionError&) {
            throw;
        } catch (const ConfigError&) {  // it is not what this version writes: start from the beginning
        }
        return {};
    }
};

// The tokens of one passage.
struct Encoded {
    std::vector<int32_t> ids;
    std::vector<int64_t> documents;  // where documents begin, as indices in ids
    int64_t reached = 0;             // how far the file is encoded, as an offset in its text
    int64_t document_bytes = 0;      // of the text, without the JSON around it
    JsonFlaws flaws;
};

class PassageEncoder {
public:
    explicit PassageEncoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer), encoder_(tokenizer) {}

    Encoded encode(const Passage& passage) {
        try {
            return encoded(passage);
        } catch (const ConfigError& error) {
            const std::string text = error.what();
            throw ConfigError("{}", text.starts_with(*passage.file) ? text : *passage.file + ": " + text);
        }
    }

    /// Encodes a passage of a document from `from` on, where a piece must begin.
    void encode_from(const Passage& passage, size_t from, Encoded& out) {
        if (passage.begins_document()) begin_document(out);
        const size_t reached =
            from < passage.end ? encoder_.encode_part(passage.document, from, passage.end, out.ids) : from;
        out.reached = passage.offset + int64_t(reached);
        out.document_bytes += int64_t(reached) - int64_t(from);
        if (passage.ends_document()) end_document(out);
    }

private:
    Encoded encoded(const Passage& passage) {
        Encoded out;
        if (passage.json_lines)
            out.flaws = each_json_text(passage, [&](std::string_view text) {
                if (text.empty()) return;
                begin_document(out);
                encoder_.encode(text, out.ids);
                out.document_bytes += int64_t(text.size());
                end_document(out);
            });
        else if (tokenizer_->can_encode_parts())
            encode_from(passage, passage.begin, out);
        else if (passage.begins_document())
            encode_whole(passage, out);
        return out;
    }

    // The regular expression cannot start in the middle of a text. Therefore, the whole document is encoded
    // with its first passage.
    void encode_whole(const Passage& passage, Encoded& out) {
        begin_document(out);
        encoder_.encode(passage.document, out.ids);
        out.document_bytes += int64_t(passage.document.size());
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

// Identifies text and tokenizer. A complete file that has the value of an earlier version is not made again.
struct Content {
    std::string now, earlier;
};

Content content_of(const Corpus& corpus, const Tokenizer& tokenizer) {
    const std::string text = hash_text(corpus.content_hash());
    const auto with = [&](const std::string& hash) {
        return hash_text(hash_of("tokens 2 " + hash + " " + text));
    };
    return {with(tokenizer.hash()), with(tokenizer.earlier_hash())};
}

// A summary of the output if it was already made from this text with this tokenizer; nothing if it must be
// made.
std::optional<Tokenized> finished(const fs::path& output, const Content& content, bool replace) {
    if (!exists_patiently(output)) return std::nullopt;
    if (!is_token_file(output))
        throw ConfigError("{} already exists and is not a token file; choose another name, or remove it",
                          output.string());
    const hdf5::File file = hdf5::File::open(output.string());
    if (!file.has("tokens"))
        throw ConfigError(
            "{} already exists and is an HDF5 file, but not a token file; choose another name, or remove it",
            output.string());
    const std::string its = file.has_attribute("content") ? file.string_attribute("content") : "";
    if (its != content.now && replace) return std::nullopt;
    if (its != content.now && its != content.earlier) {
        throw ConfigError(
            "{} already exists, but was made from other text or with another tokenizer; --force replaces it",
            output.string());
    }
    return Tokenized{
        .tokens = file.int_attribute("num_tokens"),
        .documents = file.int_attribute("num_documents"),
        .text_bytes = file.has_attribute("text_bytes") ? file.int_attribute("text_bytes") : 0,
        .up_to_date = true,
        .earlier = its != content.now,
        .flaws = {.bad_lines = file.has_attribute("bad_lines") ? file.int_attribute("bad_lines") : 0,
                  .first_bad =
                      file.has_attribute("first_bad_line") ? file.string_attribute("first_bad_line") : ""},
    };
}

// Makes one token file.
class Job {
public:
    Job(const Corpus& corpus, const Tokenizer& tokenizer, const Parts& parts, const std::string& content,
        const TokenizeOptions& options)
        : corpus_(&corpus),
          tokenizer_(&tokenizer),
          parts_(&parts),
          content_(content),
          options_(options),
          type_(tokenizer.vocab_size() > 65536 ? hdf5::Type::u32 : hdf5::Type::u16),
          state_(State::read(parts, content, hdf5::size_of(type_))),
          tokens_(parts.tokens.string(), type_, state_.tokens),
          documents_(parts.documents.string(), hdf5::Type::u64, state_.documents),
          own_encoder_(tokenizer) {}

    Tokenized run() {
        const int64_t resumed = state_.tokens;
        if (!tokenizer_->notice().empty()) log::info("{}", tokenizer_->notice());
        if (resumed > 0)
            log::info("resuming an interrupted run: {} tokens exist already", with_commas(resumed));
        const int threads = options_.threads > 0 ? options_.threads : hardware_threads();
        ProgressBar progress("tokenizing", corpus_->bytes(), true);
        Timer since_save;
        CorpusReport report = corpus_->read_blocks(
            [&](const Corpus::Block& block) {
                encode(block.passages, threads);
                state_.next = block.next;
                state_.report = block.report;
                progress.update(block.file_bytes);
                const bool ends = stop_request() != 0;
                if (!ends && since_save.seconds() < options_.save_seconds) return;
                save();
                end_if_requested("the tokens so far are saved; run the same command to resume");
                since_save.restart();
            },
            {.from = state_.next,
             .report = state_.report,
             .block_bytes = options_.block_bytes,
             .whole_documents = !tokenizer_->can_encode_parts()});
        report.json.add(state_.lines);
        for (const std::string& warning : report.warnings()) log::warn("{}", warning);
        if (tokens_.count() == 0) throw ConfigError("{}: contains no text", corpus_->source());
        write_hdf5(report);
        return {.tokens = tokens_.count(),
                .documents = state_.documents,
                .text_bytes = report.text_bytes,
                .resumed_tokens = resumed,
                .flaws = report.json};
    }

private:
    void encode(const std::vector<Passage>& passages, int threads) {
        // encoders keep their caches of words from block to block
        while (encoders_.size() < size_t(threads)) encoders_.emplace_back(*tokenizer_);
        std::atomic<size_t> next_encoder = 0;
        in_order(
            int64_t(passages.size()), threads, [&] { return &encoders_[next_encoder++]; },
            [&](PassageEncoder* encoder, int64_t i) { return encoder->encode(passages[size_t(i)]); },
            [&](int64_t i, Encoded encoded) { append(passages[size_t(i)], std::move(encoded)); });
    }

    void append(const Passage& passage, Encoded encoded) {
        // If the previous passage's last piece extends past the cut, this passage is encoded again from the
        // end of that piece.
        const bool cut_text = !passage.json_lines && tokenizer_->can_encode_parts();
        if (cut_text && !passage.begins_document() &&
            state_.reached != passage.offset + int64_t(passage.begin)) {
            encoded = {};
            own_encoder_.encode_from(passage, size_t(state_.reached - passage.offset), encoded);
        }
        state_.reached = encoded.reached;
        if (state_.document_bytes >= 0) state_.document_bytes += encoded.document_bytes;
        state_.lines.add(encoded.flaws);
        for (int64_t& begin : encoded.documents) begin += tokens_.count();
        documents_.append(std::span<const int64_t>(encoded.documents));
        tokens_.append(std::span<const int32_t>(encoded.ids));
        for (const int32_t id : encoded.ids) state_.max_token = std::max<int64_t>(state_.max_token, id);
        state_.tokens = tokens_.count();
        state_.documents = documents_.count();
    }

    void save() {
        tokens_.sync();
        documents_.sync();
        write_json(state_.json(content_), parts_->resume);
    }

    void write_hdf5(const CorpusReport& report) {
        auto file = hdf5::File::create(parts_->part.string());
        file.set_attribute("tokenizer", tokenizer_->hash());
        file.set_attribute("source", corpus_->source());
        file.set_attribute("content", content_);
        file.set_attribute("num_tokens", tokens_.count());
        file.set_attribute("num_documents", state_.documents);
        file.set_attribute("text_bytes", report.text_bytes);
        if (state_.document_bytes >= 0) file.set_attribute("document_bytes", state_.document_bytes);
        file.set_attribute("lone_surrogates", report.json.lone_surrogates);
        file.set_attribute("bad_lines", report.json.bad_lines);
        if (report.json.bad_lines > 0) file.set_attribute("first_bad_line", report.json.first_bad);
        file.set_attribute("vocab_size", tokenizer_->vocab_size());
        file.set_attribute("max_token", state_.max_token);
        file.set_attribute("bos_id", tokenizer_->bos_id().value_or(-1));
        file.set_attribute("eos_id", tokenizer_->eos_id().value_or(-1));
        tokens_.copy_to(file, "tokens");
        const int64_t total[] = {tokens_.count()};
        documents_.append(std::span<const int64_t>(total));
        documents_.copy_to(file, "documents");
        file.close();
        RawFile::open_for_update(parts_->part.string()).sync();
    }

    const Corpus* corpus_;
    const Tokenizer* tokenizer_;
    const Parts* parts_;
    std::string content_;
    TokenizeOptions options_;
    hdf5::Type type_;
    State state_;
    Spool tokens_, documents_;
    PassageEncoder own_encoder_;
    std::deque<PassageEncoder> encoders_;
};

Tokenized make(const Corpus& corpus, const Tokenizer& tokenizer, const fs::path& output,
               const TokenizeOptions& options, const Content& content) {
    if (const auto done = finished(output, content, options.replace)) return *done;
    const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
    std::error_code failed;
    make_folders_patiently(folder, failed);
    if (failed) throw ConfigError("{}: this folder cannot be created: {}", folder.string(), failed.message());

    const FileLock lock(output.string() + ".lock",
                        [&] { log::info("another process is making {}: waiting for it", output.string()); });
    if (const auto done = finished(output, content, options.replace)) return *done;
    const Parts parts(output, lock.held());
    Tokenized done;
    try {
        done = Job(corpus, tokenizer, parts, content.now, options).run();
    } catch (const PermissionError&) {  // a ticket of the file system may have ended
        parts.remove_useless();
        throw;
    } catch (const ConfigError&) {
        parts.remove();  // the user will change the text, so there is nothing to resume from
        throw;
    } catch (const SystemError&) {  // the disk is full
        parts.remove_useless();
        throw;
    }
    publish_file(parts.part.string(), output.string());
    parts.remove();
    return done;
}

}  // namespace

std::string Tokenized::text() const {
    return fmt::format("{} tokens in {}{}", with_commas(tokens), counted(documents, "document"),
                       flaws.bad_lines == 0
                           ? ""
                           : fmt::format(" (without {}, the first: {})", counted(flaws.bad_lines, "bad line"),
                                         flaws.first_bad));
}

std::string earlier_tables_warning(const fs::path& file) {
    return fmt::format(
        "{}: an earlier version of Coeus made this token file with other tables of Unicode, so the ids of "
        "rare "
        "characters may differ; `coeus tokenize INPUT... --tokenizer FOLDER --output {} --force` makes it "
        "again",
        file.string(), file.string());
}

Tokenized tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const fs::path& output,
                   const TokenizeOptions& options) {
    Tokenized done = make(corpus, tokenizer, output, options, content_of(corpus, tokenizer));
    if (done.earlier) log::warn("{}", earlier_tables_warning(output));
    return done;
}

namespace {

// The token file of a text in a cache folder. A file of an earlier version is taken if there is no other.
struct Cached {
    Content content;
    fs::path file;
    bool earlier = false;
};

Cached cached(const Corpus& corpus, const std::string& name, const Tokenizer& tokenizer,
              const fs::path& folder) {
    if (corpus.bytes() > much_text)
        log::info(
            "reading {} of text to find out whether it was tokenized before; a file made with `coeus "
            "tokenize` needs no such check",
            bytes_text(double(corpus.bytes())));
    const Content content = content_of(corpus, tokenizer);
    const auto named = [&](const std::string& its) { return folder / fmt::format("{}-{}.h5", name, its); };
    const bool earlier = !exists_patiently(named(content.now)) && exists_patiently(named(content.earlier));
    return {content, named(earlier ? content.earlier : content.now), earlier};
}

}  // namespace

fs::path tokenized(const Corpus& corpus, const std::string& name, const Tokenizer& tokenizer,
                   const fs::path& cache_folder, int threads) {
    const auto [content, file, earlier] = cached(corpus, name, tokenizer, cache_folder);
    const Timer timer;
    const Tokenized done = make(corpus, tokenizer, file, {.threads = threads, .replace = !earlier}, content);
    log::info("{}: {}, {}", corpus.source(), done.text(),
              done.up_to_date ? "tokenized before: " + file.string()
                              : "tokenized in " + duration_text(timer.seconds()));
    return file;
}

std::optional<fs::path> tokenized_before(const Corpus& corpus, const std::string& name,
                                         const Tokenizer& tokenizer, const fs::path& cache_folder) {
    const Cached it = cached(corpus, name, tokenizer, cache_folder);
    return exists_patiently(it.file) ? std::optional(it.file) : std::nullopt;
}

}  // namespace coeus
