// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/standard_input.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/stop_signals.hpp"
#include "coeus/file/raw_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <system_error>
#include <utility>
#include <vector>

namespace coeus {

namespace {

constexpr const char* its_name = "the standard input";
constexpr int look_milliseconds = 100;

// Waits until there is something to read or the other program has ended.
void wait_for_input() {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    do end_if_requested("the standard input was not read to its end; nothing was written");
    while (poll(&input, 1, look_milliseconds) == 0);
}

}  // namespace

StandardInput::StandardInput(std::filesystem::path file) : file_(std::move(file)) {
    if (isatty(STDIN_FILENO) != 0)
        throw ConfigError(
            "-: reads the standard input, which is a terminal; write the text to it with a pipe, as in: zcat "
            "x.jsonl.gz | coeus tokenize - ...");
    std::error_code failed;
    if (file_.has_parent_path()) make_folders_patiently(file_.parent_path(), failed);
    if (failed)
        throw ConfigError("{}: this folder cannot be created: {}", file_.parent_path().string(),
                          failed.message());
    try {
        RawFile out = RawFile::create(file_.string());
        std::vector<char> piece(size_t(1) << 20);
        for (int64_t written = 0;;) {
            wait_for_input();
            const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
            if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
            if (got < 0) throw SystemError(fmt::format("{} cannot be read", its_name));
            if (got == 0) break;
            out.write(piece.data(), got, written);
            written += got;
        }
    } catch (...) {
        std::filesystem::remove(file_, failed);
        throw;
    }
}

StandardInput::~StandardInput() {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
}

Corpus StandardInput::corpus(Corpus::Kind kind, BadLines bad_lines, const std::string& field) const {
    return {file_, its_name, kind, bad_lines, field};
}

}  // namespace coeus
