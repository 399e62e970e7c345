// SPDX-License-Identifier: Apache-2.0
// Files that a run writes about itself besides its checkpoints: metrics, events, logs, traces. A full disk
// does not end a run: a warning is logged once, each further record is tried again, and lost records are
// counted and reported.
#pragma once

#include "coeus/base/error.hpp"

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace coeus {

/// True for the error codes of a write that mean that there is no room: a full disk, an exhausted quota, a
/// file-size limit, a failing disk.
bool lacks_room(int code);

/// Writes a file and replaces an old one. SystemError if it cannot be written; then no part of it remains.
void write_whole_file(const std::filesystem::path& file, const std::string& text);

/// Counts the records that a run could not write, and logs the first failure, the first success after it, and
/// the total at the end.
class Losses {
public:
    /// `thing` and `whose` are for messages: "trace" and "of the steps" give "2 traces of the steps are
    /// lost".
    Losses(std::string thing, std::string whose);
    ~Losses() { say(); }
    Losses(const Losses&) = delete;
    Losses& operator=(const Losses&) = delete;

    /// Counts one loss. `why` is a sentence without its full stop: "out/metrics.jsonl cannot be written: No
    /// space left on device".
    void failed(const std::string& why);
    void succeeded();
    /// Calls `work`, which throws if a file cannot be written. Any error counts as one lost record. Returns
    /// true if it succeeded.
    template <class Work>
    bool attempt(const Work& work) {
        try {
            work();
        } catch (const std::exception& failure) {
            return failed(failure.what()), false;
        }
        return succeeded(), true;
    }
    int64_t count() const { return count_; }
    /// Logs a warning with the count if records were lost since the last one.
    void say();

private:
    std::string text() const;
    std::string thing_, whose_, why_;
    int64_t count_ = 0, said_ = 0;
    bool failing_ = false, told_ = false;
};

/// A file to which whole records are appended. Each record is handed to the operating system at once. A
/// record that was written only in part is removed, so that the file can be read at any time.
class TelemetryFile {
public:
    /// What the file contains, and the words of its messages: "2 lines of out/metrics.jsonl are lost".
    struct Form {
        const char* record = "line";
        bool lines = true;  ///< records end with '\n'; an incomplete last line of the file is ended first
        std::string head;   ///< written before the first record of an empty file
    };
    /// Opens or creates the file. Throws nothing: see require_open().
    TelemetryFile(std::filesystem::path path, Form form);
    explicit TelemetryFile(std::filesystem::path path) : TelemetryFile(std::move(path), Form{}) {}
    ~TelemetryFile();
    TelemetryFile(const TelemetryFile&) = delete;
    TelemetryFile& operator=(const TelemetryFile&) = delete;

    /// SystemError if the file could not be opened for another reason than lack of room. Called at the start
    /// of a run, while a wrong path can still be corrected.
    void require_open() const;
    /// Appends a record. Returns false if it is lost; the loss is counted.
    bool append(std::string_view record);
    const std::filesystem::path& path() const { return path_; }
    /// Logs how many records were lost since the last report, if any.
    void say_losses() { losses_.say(); }

private:
    int open();
    int cut();
    int64_t size() const;
    int write_whole(std::string_view bytes);
    void close();

    std::filesystem::path path_;
    Form form_;
    Losses losses_;
    int descriptor_ = -1, open_error_ = 0;
    int64_t whole_ = 0;  ///< bytes before the record that is being written
    bool is_cut_short_ = false, needs_end_ = false;
};

}  // namespace coeus
