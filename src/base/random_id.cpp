// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/random_id.hpp"

#include "coeus/base/error.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstdint>

namespace coeus {

std::string random_id() {
    uint64_t number = 0;
    // so few bytes come whole, whatever signals come
    if (getrandom(&number, sizeof number, 0) != ssize_t(sizeof number))
        throw SystemError(fmt::format("the system gives no random numbers: {}", errno_text(errno)));
    return fmt::format("{:016x}", number);
}

}  // namespace coeus
