// SPDX-License-Identifier: Apache-2.0
#include "support/options.hpp"

#include "coeus/config/config.hpp"
#include "support/support.hpp"

namespace coeus::test {

namespace {

constexpr const char* aliases_title = "## Other names";

// "one of a, b (not built yet), c [no effect: ...]" -> "a, b"
std::string words_of(const std::string& meaning) {
    const size_t found = meaning.find("; one of ");
    if (found == std::string::npos) return "";
    const std::string words = meaning.substr(found + 9);
    return words.substr(0, words.find_first_of("([|") - 1);
}

}  // namespace

std::vector<ListedOption> listed_options() {
    std::vector<ListedOption> options;
    std::string section;
    for (const std::string& line : lines_of(options_markdown())) {
        if (line == aliases_title) break;
        if (line.starts_with("## ")) section = line[3] == '[' ? line.substr(4, line.size() - 5) + "." : "";
        if (!line.starts_with("| `")) continue;
        const size_t name_end = line.find("` | "), type_end = line.find(" | ", name_end + 4);
        options.push_back({section + line.substr(3, name_end - 3),
                           line.substr(name_end + 4, type_end - name_end - 4), words_of(line),
                           line.find("[no effect: ") == std::string::npos &&
                               line.find("[used with ") == std::string::npos &&
                               line.find("[refused: ") == std::string::npos});
    }
    return options;
}

std::string deck_body(const Config& config) {
    const std::string text = deck_text(config);
    return text.substr(text.find('\n'));
}

std::vector<std::string> listed_aliases() {
    std::vector<std::string> names;
    bool begun = false;
    for (const std::string& line : lines_of(options_markdown())) {
        begun = begun || line == aliases_title;
        if (begun && line.starts_with("| `")) names.push_back(line.substr(3, line.find("` | ") - 3));
    }
    return names;
}

}  // namespace coeus::test
