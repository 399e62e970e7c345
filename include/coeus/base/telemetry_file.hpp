// SPDX-License-Identifier: Apache-2.0
// What a run writes of itself beside its checkpoints: metrics, events, logs, traces. No lack of space there
// ends a run: it warns once, tries again with the next record, counts what is lost, and says the count.
#pragma once

#include "coeus/base/error.hpp"

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace coeus {

/// True for the errors of a write that say that there is no room: a full disk, a quota, a limit on the size
/// of files, a disk that fails.
bool lacks_room(int code);

/// Writes a file, over any old one; SystemError where it cannot be written, and then no part of it stays.
void write_whole_file(const std::filesystem::path& file, const std::string& text);

/// Counts what a run could not write, and says so: the first failure, the first success after it, and at the
/// end how many are lost.
class Losses {
public:
    /// "trace", "of the steps": 2 traces of the steps are lost.
    Losses(std::string thing, std::string whose);
    ~Losses() { say(); }
    Losses(const Losses&) = delete;
    Losses& operator=(const Losses&) = delete;

    /// `why`: a sentence without its stop, "out/metrics.jsonl cannot be written: No space left on device".
    void failed(const std::string& why);
    void succeeded();
    /// Does work that throws where a file cannot be written; any error counts as one lost. True: it was done.
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
    /// A warning with the count, where some were lost since the last one.
    void say();

private:
    std::string text() const;
    std::string thing_, whose_, why_;
    int64_t count_ = 0, said_ = 0;
    bool failing_ = false, told_ = false;
};

/// A file to which whole records are appended, each at once in the hands of the system. Of a record that is
/// written in part nothing stays, so that the file can be read at all times.
class TelemetryFile {
public:
    /// What it says of itself, beside its path: "2 lines of out/metrics.jsonl are lost".
    struct Form {
        const char* record = "line";
        bool lines = true;  ///< records end with '\n'; a last one that was cut short before gets its end
        std::string head;   ///< begins an empty file, with its first record
    };
    /// Opens the file, or makes it. Throws nothing: see require_open().
    TelemetryFile(std::filesystem::path path, Form form);
    explicit TelemetryFile(std::filesystem::path path) : TelemetryFile(std::move(path), Form{}) {}
    ~TelemetryFile();
    TelemetryFile(const TelemetryFile&) = delete;
    TelemetryFile& operator=(const TelemetryFile&) = delete;

    /// SystemError where the file could not be opened, unless there was no room for it: for the start of a
    /// run, where a wrong place can be mended.
    void require_open() const;
    /// False: it is lost, and counted.
    bool append(std::string_view record);
    const std::filesystem::path& path() const { return path_; }
    /// Says what is lost so far, if it was not said.
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
