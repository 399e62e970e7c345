// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"

#include <cstring>
#include <string_view>

namespace coeus {

namespace {

std::string with_place(const std::string& what, const std::source_location& where) {
    std::string_view file = where.file_name();
    if (const auto at = file.rfind("/src/"); at != std::string_view::npos) file.remove_prefix(at + 1);
    return fmt::format("{} [{}:{}]", what, file, where.line());
}

}  // namespace

SystemError::SystemError(const std::string& what, std::source_location where)
    : std::runtime_error(with_place(what, where)) {}

LogicError::LogicError(const std::string& what, std::source_location where)
    : std::logic_error(with_place("internal error: " + what, where)) {}

std::string errno_text(int code) {
    return std::strerror(code);
}

}  // namespace coeus
