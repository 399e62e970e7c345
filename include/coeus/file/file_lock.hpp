// SPDX-License-Identifier: Apache-2.0
// One process at a time: an advisory lock that ends with its holder, however that ends.
#pragma once

#include <functional>
#include <string>

namespace coeus {

class FileLock {
public:
    /// Waits until the lock is free, saying so by `waiting` once where it is not; makes the file and removes
    /// it at the end. SystemError where it cannot be made. A file system without locks gives none: held() is
    /// false.
    FileLock(std::string path, const std::function<void()>& waiting);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

    bool held() const { return held_; }

private:
    std::string path_;
    int descriptor_ = -1;
    bool held_ = false;
};

}  // namespace coeus
