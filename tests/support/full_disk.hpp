// SPDX-License-Identifier: Apache-2.0
// A limit on the size of files that stands in for a full disk.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace coeus::test {

/// While it lives, this process can write only the first bytes of a file: one, or as many as given.
class FullDisk {
public:
    explicit FullDisk(rlim_t bytes = 1) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit full{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &full);
    }
    ~FullDisk() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, signal_);
    }
    FullDisk(const FullDisk&) = delete;
    FullDisk& operator=(const FullDisk&) = delete;

private:
    rlimit before_{};
    void (*signal_)(int);
};

}  // namespace coeus::test
