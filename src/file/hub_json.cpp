// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/hub_json.hpp"

#include "coeus/file/raw_file.hpp"

#include <filesystem>

namespace coeus {

std::string with_quoted_numbers(std::string_view json) {
    std::string out;
    out.reserve(json.size());
    bool in_text = false;
    for (size_t i = 0; i < json.size();) {
        size_t length = 0;
        if (!in_text)
            for (const std::string_view number : {"NaN", "Infinity", "-Infinity"})
                if (json.substr(i).starts_with(number)) length = number.size();
        if (length > 0) {
            out.append("\"").append(json.substr(i, length)).append("\"");
            i += length;
            continue;
        }
        if (in_text && json[i] == '\\' && i + 1 < json.size())
            out += json[i++];  // what follows does not end the text
        else if (json[i] == '"')
            in_text = !in_text;
        out += json[i++];
    }
    return out;
}

JsonDocument read_hub_config(const std::string& folder) {
    constexpr int64_t most_bytes = 128 << 20;
    const std::string file = (std::filesystem::path(folder) / "config.json").string();
    return JsonDocument::parse(with_quoted_numbers(read_text_file(file, most_bytes)), file);
}

}  // namespace coeus
