// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/file/json.hpp"

#include <string>

namespace coeus::test {

/// What a report's page draws: the JSON inside its HTML.
inline Json data_of(const std::string& html) {
    const std::string begin = "id=\"data\">";
    const size_t at = html.find(begin) + begin.size();
    return JsonDocument::parse(html.substr(at, html.find("</script>", at) - at), "data").root().value();
}

}  // namespace coeus::test
