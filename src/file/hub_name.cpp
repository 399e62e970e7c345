// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/hub_name.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cstdint>
#include <filesystem>
#include <system_error>

namespace coeus {

std::string download_hint(const std::string& path) {
    constexpr size_t longest = 96;  // of a name of the Hub
    const size_t slash = path.find('/');
    const auto is_part = [](const std::string& part) {
        if (part.empty() || part[0] == '.' || part[0] == '~') return false;
        for (const char c : part)
            if (!std::isalnum(uint8_t(c)) && c != '-' && c != '_' && c != '.') return false;
        return true;
    };
    if (path.size() > 2 * longest || slash == std::string::npos) return "";
    const std::string owner = path.substr(0, slash), name = path.substr(slash + 1);
    for (const char* ending :
         {".h5", ".json", ".jsonl", ".txt", ".toml", ".gz", ".zst", ".model", ".tiktoken"})
        if (name.ends_with(ending)) return "";  // a file
    std::error_code unseen;
    if (!is_part(owner) || !is_part(name) || std::filesystem::exists(path, unseen) ||
        std::filesystem::exists(owner, unseen))
        return "";
    return fmt::format(
        "; nothing is downloaded: `hf download {0} --local-dir {1}` makes the folder {1}, whose path is then "
        "given here",
        path, name);
}

}  // namespace coeus
