// SPDX-License-Identifier: Apache-2.0
// Catch2 version 2 or 3 (COEUS_CATCH2), under the names of version 2.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#define COEUS_CATCH2 3
#include <catch2/catch_all.hpp>

#include <string>

namespace Catch {

using Matchers::EndsWith;
using Matchers::Matches;
using Matchers::StartsWith;

inline Matchers::StringContainsMatcher Contains(const std::string& text) {
    return Matchers::ContainsSubstring(text);
}

}  // namespace Catch
#else
#define COEUS_CATCH2 2
#include <catch2/catch.hpp>
#endif
