// SPDX-License-Identifier: Apache-2.0
// The user's text: plain files (one document each), JSON lines or JSON with a `text` field (one document
// each), folders of these. Read in batches that fit in memory, cut into passages of about a megabyte for
// threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// A piece of work: a part of one plain document, or whole lines of JSON. Views into the batch.
struct Passage {
    std::string_view document;  ///< all of the document, or of the lines; valid UTF-8
    size_t begin = 0, end = 0;  ///< this passage's part of it
    bool json_lines = false;
    const std::string* file = nullptr;

    std::string_view text() const { return document.substr(begin, end - begin); }
    bool begins_document() const { return begin == 0; }
    bool ends_document() const { return end == document.size(); }
};

class Corpus {
public:
    /// Finds the files: those named, and in folders, recursively, all that are not hidden. ConfigError: a
    /// path is missing, nothing is found, a file is compressed, binary or of another known format, all are
    /// empty.
    explicit Corpus(const std::vector<std::filesystem::path>& inputs);

    int64_t bytes() const { return bytes_; }
    /// "news.txt", or "news.txt and 11 more"
    std::string source() const;
    /// Of all contents in order, and of what kind each is.
    uint64_t content_hash() const;

    /// Reads batch after batch; passages are in order, their views live until `visit` returns. Bytes that are
    /// not UTF-8 become U+FFFD; returns how many times.
    int64_t read(const std::function<void(const std::vector<Passage>&)>& visit) const;

private:
    enum class Kind { text, json, json_lines };
    struct File {
        std::string path;
        int64_t bytes;
        Kind kind;
    };
    struct Batch;
    std::vector<File> files_;
    int64_t bytes_ = 0;
};

/// Calls visit(text) for the documents in a passage of JSON lines. ConfigError names file and line.
void each_json_text(const Passage& passage, const std::function<void(std::string_view)>& visit);

}  // namespace coeus
