// SPDX-License-Identifier: Apache-2.0
// A library to preload into a run. It simulates a damaged or a full disk.
// Reads of the file whose path ends with COEUS_TEST_BAD_FILE fail with EIO from byte COEUS_TEST_BAD_FROM on.
// Writes of files whose path contains COEUS_TEST_FULL_FILE fail with ENOSPC from byte COEUS_TEST_FULL_FROM
// on.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <string_view>

namespace {

std::string path_of(int descriptor) {
    char link[64], path[4096];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, path, sizeof path);
    return length > 0 ? std::string(path, size_t(length)) : "";
}

bool is_bad(int descriptor, off_t end) {
    const char *file = std::getenv("COEUS_TEST_BAD_FILE"), *from = std::getenv("COEUS_TEST_BAD_FROM");
    return file && from && end > std::atoll(from) && path_of(descriptor).ends_with(file);
}

bool is_full(int descriptor, off_t end) {
    const char *file = std::getenv("COEUS_TEST_FULL_FILE"), *from = std::getenv("COEUS_TEST_FULL_FROM");
    return file && from && end > std::atoll(from) && path_of(descriptor).find(file) != std::string::npos;
}

// The offset at which the next write() of so many bytes ends.
off_t next_end(int descriptor, size_t bytes) {
    struct stat status = {};
    const bool appends = (fcntl(descriptor, F_GETFL) & O_APPEND) != 0;
    const off_t at =
        appends && fstat(descriptor, &status) == 0 ? status.st_size : lseek(descriptor, 0, SEEK_CUR);
    return at + off_t(bytes);
}

size_t bytes_in(const iovec* parts, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
    return bytes;
}

template <class... Arguments>
ssize_t call(const char* name, Arguments... arguments) {
    return reinterpret_cast<ssize_t (*)(Arguments...)>(dlsym(RTLD_NEXT, name))(arguments...);
}

ssize_t read_at(const char* name, int descriptor, void* to, size_t bytes, off_t offset) {
    if (is_bad(descriptor, offset + off_t(bytes))) return errno = EIO, -1;
    return call(name, descriptor, to, bytes, offset);
}
ssize_t write_at(const char* name, int descriptor, const void* from, size_t bytes, off_t offset) {
    if (is_full(descriptor, offset + off_t(bytes))) return errno = ENOSPC, -1;
    return call(name, descriptor, from, bytes, offset);
}
ssize_t write_parts_at(const char* name, int descriptor, const iovec* parts, int count, off_t offset) {
    if (is_full(descriptor, offset + off_t(bytes_in(parts, count)))) return errno = ENOSPC, -1;
    return call(name, descriptor, parts, count, offset);
}

}  // namespace

extern "C" ssize_t pread(int descriptor, void* to, size_t bytes, off_t offset) {
    return read_at("pread", descriptor, to, bytes, offset);
}
extern "C" ssize_t pread64(int descriptor, void* to, size_t bytes, off_t offset) {
    return read_at("pread64", descriptor, to, bytes, offset);
}
extern "C" ssize_t pwrite(int descriptor, const void* from, size_t bytes, off_t offset) {
    return write_at("pwrite", descriptor, from, bytes, offset);
}
extern "C" ssize_t pwrite64(int descriptor, const void* from, size_t bytes, off_t offset) {
    return write_at("pwrite64", descriptor, from, bytes, offset);
}
extern "C" ssize_t pwritev(int descriptor, const iovec* parts, int count, off_t offset) {
    return write_parts_at("pwritev", descriptor, parts, count, offset);
}
extern "C" ssize_t pwritev64(int descriptor, const iovec* parts, int count, off_t offset) {
    return write_parts_at("pwritev64", descriptor, parts, count, offset);
}
extern "C" ssize_t write(int descriptor, const void* from, size_t bytes) {
    if (is_full(descriptor, next_end(descriptor, bytes))) return errno = ENOSPC, -1;
    return call("write", descriptor, from, bytes);
}
extern "C" ssize_t writev(int descriptor, const iovec* parts, int count) {
    if (is_full(descriptor, next_end(descriptor, bytes_in(parts, count)))) return errno = ENOSPC, -1;
    return call("writev", descriptor, parts, count);
}
extern "C" int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
    if (is_full(descriptor, offset + bytes)) return errno = ENOSPC, -1;
    using Fallocate = int (*)(int, int, off_t, off_t);
    return reinterpret_cast<Fallocate>(dlsym(RTLD_NEXT, "fallocate"))(descriptor, mode, offset, bytes);
}
