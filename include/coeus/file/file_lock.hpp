// SPDX-License-Identifier: Apache-2.0
// FileLock: an advisory lock for one process at a time. It ends with the process that holds it, even if that
// crashes.
#pragma once

#include <functional>
#include <string>

namespace coeus {

class FileLock {
public:
    /// Makes the file and waits until the lock is free; calls `waiting` once if it has to wait. The
    /// destructor removes the file. SystemError if the file cannot be made. On a file system without locks
    /// held() is false.
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
