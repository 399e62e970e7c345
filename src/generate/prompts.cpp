// SPDX-License-Identifier: Apache-2.0
#include "coeus/generate/prompts.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/data/parquet_to_lines.hpp"
#include "coeus/data/text_file.hpp"
#include "coeus/file/byte_stream.hpp"
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

// Whether each line of a file is an object with a prompt: by its name, else by its first lines.
bool has_objects(std::string_view text, const std::string& file) {
    const LinesForm form = lines_form(text, {"prompt", "text"});
    if (form == LinesForm::value)
        throw ConfigError(
            "{}: is an array or an object over several lines; each line must be an object with \"prompt\" or "
            "\"text\" (jq -c '.[]' FILE writes the objects of an array so)",
            file);
    if (has_name_of_json(file)) return true;
    if (form == LinesForm::known)
        log::info("Notice: {} is JSON Lines, although the name does not end in .jsonl: each line is a prompt",
                  file);
    if (form == LinesForm::others)
        log::warn(
            "{} is read as plain text, although the first lines are JSON objects: they have neither "
            "\"prompt\" nor \"text\"",
            file);
    return form == LinesForm::known;
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& path) {
    const std::string file = path.string();
    require_file(file);
    if (is_parquet(file))
        throw ConfigError(
            "{} is a Parquet file; it must be text or JSON Lines; this writes its prompts: {} > FILE.jsonl",
            file, parquet_to_lines(file, "prompt"));
    if (const auto foreign = foreign_content(file))
        throw ConfigError("{} is {}; it must be text or JSON Lines", file, *foreign);
    const std::string all = flawless_text(file);
    const bool json = has_objects(all, file);
    std::vector<Prompt> prompts;
    int64_t number = 0;
    for (size_t begin = 0; begin < all.size();) {
        const size_t end = std::min(all.find('\n', begin), all.size());
        std::string line = all.substr(begin, end - begin);
        begin = end + 1;
        ++number;
        if (line.ends_with('\r')) line.pop_back();
        if (line.find_first_not_of(" \t") == std::string::npos) continue;
        if (json) line = text_of(line, fmt::format("{}, line {}", file, number));
        prompts.push_back({std::move(line), number});
    }
    if (prompts.empty()) throw ConfigError("{} contains no prompts: every line is empty", file);
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
