// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/telemetry_file.hpp"

#include "coeus/base/error_text.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace coeus {

namespace {

// Returns 0 or the system's error.
int write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t moved = ::write(descriptor, bytes.data(), bytes.size());
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) return ENOSPC;
        bytes.remove_prefix(size_t(moved));
    }
    return 0;
}

}  // namespace

bool lacks_room(int code) {
    return code == ENOSPC || code == EDQUOT || code == EFBIG || code == EIO;
}

void write_whole_file(const std::filesystem::path& file, const std::string& text) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::file_type type = fs::status(file, ignored).type();
    // a device or a pipe such as /dev/stdout is written directly; another file or a link is replaced
    const bool is_direct = type == fs::file_type::fifo || type == fs::file_type::character ||
                           type == fs::file_type::socket || type == fs::file_type::block;
    const std::string part = file.string() + (is_direct ? "" : ".part");
    if (!is_direct) fs::remove(part, ignored);
    const int descriptor =
        open_patiently(part, is_direct ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    int reason = descriptor < 0 ? errno : write_all(descriptor, text);
    if (descriptor >= 0 && ::close(descriptor) != 0 && reason == 0) reason = errno;
    if (reason == 0 && !is_direct && std::rename(part.c_str(), file.c_str()) != 0) reason = errno;
    if (reason == 0) return;
    if (descriptor >= 0 && !is_direct) fs::remove(part, ignored);
    fail_at_path(fmt::format("{} cannot be written: {}", file.string(), errno_text(reason)), reason);
}

Losses::Losses(std::string thing, std::string whose) : thing_(std::move(thing)), whose_(std::move(whose)) {}

std::string Losses::text() const {
    return fmt::format("{} {}{} {} {} lost", count_, thing_, count_ == 1 ? "" : "s", whose_,
                       count_ == 1 ? "is" : "are");
}

void Losses::failed(const std::string& why) {
    ++count_;
    failing_ = true;
    const bool first = why_.empty();
    why_ = why;  // before the warning, which may itself be a line of the file that fails
    if (first) log::warn("{}. Training continues; lost records are counted", why);
}

void Losses::succeeded() {
    if (!failing_) return;
    failing_ = false;
    if (told_) return;
    told_ = true;
    said_ = count_;
    log::warn("Writing works again: {}", text());
}

void Losses::say() {
    if (said_ == count_) return;
    said_ = count_;
    log::warn("{}: {}", text(), why_);
}

TelemetryFile::TelemetryFile(std::filesystem::path path, Form form)
    : path_(std::move(path)), form_(std::move(form)), losses_(form_.record, "of " + path_.string()) {
    open_error_ = open();
}

TelemetryFile::~TelemetryFile() {
    close();
}

void TelemetryFile::require_open() const {
    if (open_error_ == ELOOP)
        fail_at_path(
            fmt::format("cannot write {}: it is a symbolic link, and a run does not follow a link to one of "
                        "its files. Remove it; the folder may be a link",
                        path_.string()),
            ELOOP);
    if (open_error_ != 0 && !lacks_room(open_error_) && !may_pass(open_error_))
        fail_at_path(fmt::format("cannot write {}: {}", path_.string(), errno_text(open_error_)),
                     open_error_);
}

// A link in a run's folder may have been planted there.
static constexpr int flags = O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW;

// Returns 0 or the system's error. Removes what a failed write has left.
int TelemetryFile::open() {
    descriptor_ = open_patiently(path_.string(), flags, short_patience);
    if (descriptor_ < 0) return errno;
    if (is_cut_short_) return cut();
    const int64_t bytes = size();
    char last = '\n';
    if (bytes < 0 ||
        (form_.lines && bytes > 0 &&
         read_patiently(descriptor_, path_.string(), flags, &last, 1, bytes - 1, short_patience) < 0)) {
        const int reason = errno;
        close();
        return reason;
    }
    needs_end_ = last != '\n';
    return 0;
}

int TelemetryFile::cut() {
    const int64_t bytes = size();
    if (bytes < 0 || (bytes > whole_ && ftruncate(descriptor_, whole_) != 0)) return errno;
    is_cut_short_ = false;
    return 0;
}

// -1 and errno if the system does not tell it. Pipes and devices have none.
int64_t TelemetryFile::size() const {
    struct stat status = {};
    if (!status_of(descriptor_, path_.string(), status, short_patience)) return -1;
    return S_ISREG(status.st_mode) ? status.st_size : 0;
}

void TelemetryFile::close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
}

int TelemetryFile::write_whole(std::string_view bytes) {
    return write_all(descriptor_, bytes);
}

bool TelemetryFile::append(std::string_view record) {
    int failed = descriptor_ < 0 ? open() : 0;
    if (failed == 0) {
        const int64_t bytes = size();
        if (bytes < 0)
            failed = errno;
        else
            whole_ = bytes;
    }
    if (failed == 0) {
        std::string bytes = whole_ == 0 ? form_.head : needs_end_ ? "\n" : "";
        bytes += record;
        if (form_.lines) bytes += '\n';
        failed = write_whole(bytes);
        is_cut_short_ = failed != 0;
    }
    if (failed == 0) {
        needs_end_ = false;
        losses_.succeeded();
        return true;
    }
    if (descriptor_ >= 0 && is_cut_short_) cut();  // if this fails, it is tried again before the next record
    close();
    losses_.failed(fmt::format("{} cannot be written: {}", path_.string(), errno_text(failed)));
    return false;
}

}  // namespace coeus
