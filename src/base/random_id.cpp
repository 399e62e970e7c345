// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/random_id.hpp"

#include "coeus/base/error.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstdint>

namespace coeus {

std::string random_id() {
    uint64_t number = 0;
    // a request of so few bytes is never interrupted by signals
    if (getrandom(&number, sizeof number, 0) != ssize_t(sizeof number))
        throw SystemError(fmt::format("cannot get random numbers from the system: {}", errno_text(errno)));
    return fmt::format("{:016x}", number);
}

}  // namespace coeus
