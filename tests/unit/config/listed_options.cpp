// SPDX-License-Identifier: Apache-2.0
#include "unit/config/listed_options.hpp"

#include "coeus/deck/command_line.hpp"
#include "support/support.hpp"

#include <algorithm>

namespace coeus::test {

namespace {

constexpr const char* aliases_title = "## Other names";

// "One of `a`, `b` (not implemented yet), `c`." -> "a, b"
std::string words_of(const std::string& item) {
    for (const std::string start : {" One of `", " Any of `", " Only `"}) {
        const size_t found = item.find(start);
        if (found == std::string::npos) continue;
        std::string words = item.substr(found + start.size() - 1);
        words.erase(std::min(words.find(" ("), words.find("`.")));
        std::erase(words, '`');
        return words;
    }
    return "";
}

// The list items of the reference that begin with `start`, each on one line, before or after the title of the
// aliases.
std::vector<std::string> items(const std::string& start, bool of_aliases) {
    std::vector<std::string> all;
    bool is_alias = false;
    for (const std::string& line : lines_of(options_markdown(deck_rules()))) {
        is_alias = is_alias || line == aliases_title;
        if (is_alias != of_aliases) continue;
        if (line.starts_with(start))
            all.push_back(line);
        else if (line.starts_with("  ") && !all.empty())
            all.back() += line.substr(1);
    }
    return all;
}

}  // namespace

std::vector<ListedOption> listed_options() {
    std::vector<ListedOption> options;
    const auto add = [&](const std::string& start, const std::string& after_name, bool has_field) {
        for (const std::string& item : items(start, false)) {
            const size_t name_end = item.find(after_name), type = name_end + after_name.size();
            std::string type_name = item.substr(type, item.find_first_of(",)|", type) - type);
            if (type_name.ends_with(' ')) type_name.pop_back();  // the end of a cell
            options.push_back({item.substr(start.size(), name_end - start.size()), type_name, words_of(item),
                               has_field && item.find("*Refused*") == std::string::npos});
        }
    };
    add("- **`", "`** (", true);
    add("| `", "` | ", false);  // the table of those without effect
    return options;
}

std::string deck_body(const Config& config) {
    const std::string text = deck_text(config);
    return text.substr(text.find('\n'));
}

std::vector<std::string> listed_aliases() {
    std::vector<std::string> names;
    const std::string start = "- `";
    for (const std::string& item : items(start, true))
        names.push_back(item.substr(start.size(), item.find('`', start.size()) - start.size()));
    return names;
}

}  // namespace coeus::test
