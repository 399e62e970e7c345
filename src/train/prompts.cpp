// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/prompts.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"

namespace coeus {

namespace {

std::string text_of(const std::string& line, const std::string& place) {
    const JsonDocument document = JsonDocument::parse(line, place);
    const JsonView object = document.root();
    if (!object.is_object()) object.reject("must be an object with \"prompt\" or \"text\"");
    for (const char* key : {"prompt", "text"})
        if (object.contains(key)) return object.string(key);
    throw ConfigError("{}: has neither \"prompt\" nor \"text\"", place);
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
    const MappedFile map(file.string());
    const std::string_view all(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
    std::vector<Prompt> prompts;
    int64_t number = 0;
    bool is_json = false;
    for (size_t begin = 0; begin < all.size();) {
        const size_t end = std::min(all.find('\n', begin), all.size());
        std::string line(all.substr(begin, end - begin));
        begin = end + 1;
        ++number;
        if (line.ends_with('\r')) line.pop_back();
        const size_t first = line.find_first_not_of(" \t");
        if (first == std::string::npos) continue;
        if (prompts.empty()) is_json = line[first] == '{';
        if (is_json) line = text_of(line, fmt::format("{}, line {}", file.string(), number));
        prompts.push_back({std::move(line), number});
    }
    if (prompts.empty()) throw ConfigError("{} has no prompts: every line is empty", file.string());
    return prompts;
}

}  // namespace coeus
