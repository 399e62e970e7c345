// SPDX-License-Identifier: Apache-2.0
// Preloaded into a run: a disk that cannot read the file whose path ends with COEUS_TEST_BAD_FILE from byte
// COEUS_TEST_BAD_FROM on. Reads of that place fail with EIO.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <string_view>

namespace {

bool is_bad(int descriptor, off_t end) {
    const char *file = std::getenv("COEUS_TEST_BAD_FILE"), *from = std::getenv("COEUS_TEST_BAD_FROM");
    if (!file || !from || end <= std::atoll(from)) return false;
    char link[64], path[4096];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, path, sizeof path);
    return length > 0 && std::string_view(path, size_t(length)).ends_with(file);
}

ssize_t read_unless_bad(const char* name, int descriptor, void* to, size_t bytes, off_t offset) {
    using Read = ssize_t (*)(int, void*, size_t, off_t);
    if (is_bad(descriptor, offset + off_t(bytes))) return errno = EIO, -1;
    return reinterpret_cast<Read>(dlsym(RTLD_NEXT, name))(descriptor, to, bytes, offset);
}

}  // namespace

extern "C" ssize_t pread(int descriptor, void* to, size_t bytes, off_t offset) {
    return read_unless_bad("pread", descriptor, to, bytes, offset);
}
extern "C" ssize_t pread64(int descriptor, void* to, size_t bytes, off_t offset) {
    return read_unless_bad("pread64", descriptor, to, bytes, offset);
}
