// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace coeus {

/// What an error says; in words where the standard library says but "std::bad_alloc", or why the system has
/// no thread to give.
std::string text_of(const std::exception& error);

}  // namespace coeus
