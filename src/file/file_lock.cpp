// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/file_lock.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/patient_io.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace coeus {

namespace {

// flock, repeated if a signal interrupts it.
bool lock(int descriptor, int how) {
    while (flock(descriptor, how) != 0)
        if (errno != EINTR) return false;
    return true;
}

// False if the last holder has removed the file: a lock on the removed file does not exclude other processes.
bool is_still_there(int descriptor, const std::string& path) {
    struct stat own, named;
    return fstat(descriptor, &own) == 0 && stat(path.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
           own.st_dev == named.st_dev;
}

}  // namespace

FileLock::FileLock(std::string path, const std::function<void()>& waiting) : path_(std::move(path)) {
    for (bool said = false;;) {
        descriptor_ = open_patiently(path_, O_RDWR | O_CREAT | O_NOFOLLOW);
        if (descriptor_ < 0)
            fail_at_path(fmt::format("{} cannot be created: {}", path_, errno_text(errno)), errno);
        bool locked = lock(descriptor_, LOCK_EX | LOCK_NB);
        if (!locked && errno == EWOULDBLOCK) {
            if (!said) waiting();
            said = true;
            locked = lock(descriptor_, LOCK_EX);
        }
        if (!locked) return;
        if (is_still_there(descriptor_, path_)) break;
        ::close(descriptor_);
    }
    held_ = true;
}

FileLock::~FileLock() {
    unlink(path_.c_str());
    ::close(descriptor_);
}

}  // namespace coeus
