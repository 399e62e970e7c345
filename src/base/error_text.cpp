// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error_text.hpp"

#include "coeus/base/error.hpp"

#include <fmt/core.h>

#include <cerrno>
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

bool blames_path(int code) {
    return code == ELOOP || code == ENAMETOOLONG || code == ENOTDIR || code == EISDIR;
}

void fail_at_path(const std::string& message, int code, std::source_location where) {
    if (blames_path(code)) throw ConfigError("{}", message);
    throw SystemError(message, where);
}

}  // namespace coeus
