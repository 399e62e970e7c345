// SPDX-License-Identifier: Apache-2.0
#include "coeus/generate/prompts.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"

#include <algorithm>

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

bool is_json(const std::filesystem::path& file) {
    const std::string extension = file.extension().string();
    return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
    const MappedFile map(file.string());
    std::string_view all(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
    if (all.find('\0') != std::string_view::npos)
        throw ConfigError(
            "{}: contains NUL bytes: it is not text, or it is UTF-16 (convert it with iconv -f UTF-16 -t "
            "UTF-8)",
            file.string());
    if (all.starts_with("\xEF\xBB\xBF")) all.remove_prefix(3);
    std::vector<Prompt> prompts;
    const bool json = is_json(file);
    int64_t number = 0;
    for (size_t begin = 0; begin < all.size();) {
        const size_t end = std::min(all.find('\n', begin), all.size());
        std::string line(all.substr(begin, end - begin));
        begin = end + 1;
        ++number;
        if (line.ends_with('\r')) line.pop_back();
        if (line.find_first_not_of(" \t") == std::string::npos) continue;
        if (json) line = text_of(line, fmt::format("{}, line {}", file.string(), number));
        prompts.push_back({std::move(line), number});
    }
    if (prompts.empty()) throw ConfigError("{} contains no prompts: every line is empty", file.string());
    return prompts;
}

std::vector<int32_t> prompt_ids(const Prompt& prompt, const Tokenizer& tokenizer, const std::string& name) {
    if (const size_t valid = valid_utf8_prefix(prompt.text); valid < prompt.text.size())
        throw ConfigError("{} is not UTF-8 at byte {}; convert it with iconv -f WINDOWS-1252 -t UTF-8", name,
                          valid + 1);
    std::vector<int32_t> ids = tokenizer.document_ends().before;
    const std::vector<int32_t> text = tokenizer.encode_prompt(prompt.text);
    ids.insert(ids.end(), text.begin(), text.end());
    if (ids.empty()) throw ConfigError("{} is empty, and the tokenizer has no BOS to start from", name);
    return ids;
}

}  // namespace coeus
