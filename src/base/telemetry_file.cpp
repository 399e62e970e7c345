// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/telemetry_file.hpp"

#include "coeus/base/log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

namespace coeus {

bool lacks_room(int code) {
    return code == ENOSPC || code == EDQUOT || code == EFBIG || code == EIO;
}

void write_whole_file(const std::filesystem::path& file, const std::string& text) {
    std::ofstream out(file, std::ios::binary);
    const bool is_made = out.is_open();
    out << text;
    out.close();
    if (out) return;
    const int reason = errno;
    std::error_code ignored;
    if (is_made) std::filesystem::remove(file, ignored);
    throw SystemError(fmt::format("{} cannot be written: {}", file.string(), errno_text(reason)));
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
    if (open_error_ != 0 && !lacks_room(open_error_))
        throw SystemError(fmt::format("cannot write {}: {}", path_.string(), errno_text(open_error_)));
}

// Returns 0 or the system's error. Removes what a failed write has left.
int TelemetryFile::open() {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0) return errno;
    if (is_cut_short_) return cut();
    const int64_t bytes = size();
    char last = '\n';
    needs_end_ = form_.lines && bytes > 0 && pread(descriptor_, &last, 1, bytes - 1) == 1 && last != '\n';
    return 0;
}

int TelemetryFile::cut() {
    if (size() > whole_ && ftruncate(descriptor_, whole_) != 0) return errno;
    is_cut_short_ = false;
    return 0;
}

int64_t TelemetryFile::size() const {
    struct stat status;
    return fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : 0;
}

void TelemetryFile::close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
}

int TelemetryFile::write_whole(std::string_view bytes) {
    for (std::string_view left = bytes; !left.empty();) {
        const ssize_t moved = ::write(descriptor_, left.data(), left.size());
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) return ENOSPC;
        left.remove_prefix(size_t(moved));
    }
    return 0;
}

bool TelemetryFile::append(std::string_view record) {
    int failed = descriptor_ < 0 ? open() : 0;
    if (failed == 0) {
        whole_ = size();
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
