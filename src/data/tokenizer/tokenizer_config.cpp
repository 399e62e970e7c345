// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_config.hpp"

#include "byte_symbols.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/file/raw_file.hpp"

#include <algorithm>
#include <charconv>

namespace coeus {

namespace fs = std::filesystem;

namespace {

// "bos_token": "<s>", or {"content": "<s>", ...}, or null.
std::optional<std::string> special_of(const JsonView& config, const char* key) {
    const auto token = config.find(key);
    if (!token) return std::nullopt;
    return token->is_object() ? token->string("content") : token->string();
}

}  // namespace

std::string content_of(const fs::path& file) {
    constexpr int64_t most_bytes = 128 << 20;
    return read_text_file(file, most_bytes);
}

int32_t token_id(const JsonView& value) {
    const int64_t id = value.integer();
    if (id < 0 || id >= most_token_ids) value.reject("must be an id from 0 to 2^22 - 1");
    return int32_t(id);
}

BpeDescription::Added added_token(const JsonView& token, int32_t id) {
    const std::string& content = token.string("content");
    if (content.empty()) token.reject("must have a content");
    return {.token = {.content = content,
                      .id = id,
                      .lstrip = token.boolean("lstrip", false),
                      .rstrip = token.boolean("rstrip", false),
                      .single_word = token.boolean("single_word", false)},
            .special = token.boolean("special", false),
            .normalized = token.boolean("normalized", false),
            .bytes = bytes_of_symbols(content).value_or(content)};
}

namespace {

void read_file(const fs::path& file, TokenizerConfig& config) {
    const JsonDocument document = JsonDocument::parse(content_of(file), file.string());
    const JsonView root = document.root();
    config.bos = special_of(root, "bos_token");
    config.eos = special_of(root, "eos_token");
    config.tokenizer_class = root.string("tokenizer_class", "");
    if (const auto kind = root.find("tiktoken")) config.tiktoken = kind->string();
    if (const auto added = root.find("added_tokens_decoder")) {
        for (const auto& [key, token] : added->items()) {
            const JsonDocument id = JsonDocument::parse(key, file.string() + ": added_tokens_decoder");
            config.added.push_back(added_token(token, token_id(id.root())));
        }
    }
    if (const auto legacy = root.find("legacy")) config.legacy = legacy->boolean();
}

// {"<pad>": 32000}
void read_added_tokens(const fs::path& file, TokenizerConfig& config) {
    const JsonDocument document = JsonDocument::parse(content_of(file), file.string());
    for (const auto& [content, id] : document.root().items()) {
        BpeDescription::Added added = special_token(content, token_id(id));
        added.special = content == config.bos || content == config.eos;
        added.normalized = !added.special;
        config.added_before.push_back(std::move(added));
    }
}

}  // namespace

TokenizerConfig read_tokenizer_config(const fs::path& folder) {
    TokenizerConfig config;
    const fs::path file = folder / "tokenizer_config.json", before = folder / "added_tokens.json";
    config.file = file.string();
    if (exists_patiently(file)) read_file(file, config);
    if (config.added.empty() && exists_patiently(before)) read_added_tokens(before, config);
    return config;
}

}  // namespace coeus
