// SPDX-License-Identifier: Apache-2.0
// White space of texts, as Python's str sees it.
#pragma once

#include "coeus/evaluate/requests.hpp"

#include <string_view>

namespace coeus {

/// The end of a text in valid UTF-8 without the white space at its end.
size_t end_without_white_space(std::string_view text);

}  // namespace coeus
