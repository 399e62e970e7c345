// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error_text.hpp"

#include <fmt/core.h>

#include <new>
#include <system_error>

namespace coeus {

std::string text_of(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error))
        return "out of memory: the system refused an allocation; check the memory of the machine and of the "
               "job, and `ulimit -v`";
    if (const auto* failed = dynamic_cast<const std::system_error*>(&error);
        failed && failed->code() == std::errc::resource_unavailable_try_again)
        return fmt::format("a thread cannot be started: {}; check `ulimit -u` and the job's task limit",
                           failed->code().message());
    return error.what();
}

}  // namespace coeus
