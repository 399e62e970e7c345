// SPDX-License-Identifier: Apache-2.0
#include "tiktoken.hpp"

#include "base64.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "pre_tokenizer.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <unordered_map>

namespace coeus {

namespace {

using Added = BpeDescription::Added;

struct Kind {
    const char* name;
    int32_t ranks;
    const char* pattern;
    std::vector<Added> (*special_tokens)(int32_t ranks);
    const char *bos, *eos;  // "": none
};

std::vector<Added> numbered(const std::vector<std::string>& names, int32_t ranks) {
    std::vector<Added> tokens;
    for (const std::string& name : names)
        tokens.push_back(special_token(name, ranks + int32_t(tokens.size())));
    return tokens;
}

std::vector<Added> llama3_special_tokens(int32_t ranks) {
    std::vector<std::string> names = {"<|begin_of_text|>",
                                      "<|end_of_text|>",
                                      "<|reserved_special_token_0|>",
                                      "<|reserved_special_token_1|>",
                                      "<|finetune_right_pad_id|>",
                                      "<|step_id|>",
                                      "<|start_header_id|>",
                                      "<|end_header_id|>",
                                      "<|eom_id|>",
                                      "<|eot_id|>",
                                      "<|python_tag|>",
                                      "<|image|>"};
    for (int i = 2; names.size() < 256; ++i) names.push_back(fmt::format("<|reserved_special_token_{}|>", i));
    return numbered(names, ranks);
}

// The names of meta-llama/llama-models, models/llama4/tokenizer.py.
std::vector<Added> llama4_special_tokens(int32_t ranks) {
    std::vector<std::string> names = {
        "<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
        "<|header_start|>",  "<|header_end|>",  "<|eom|>",        "<|eot|>",        "<|step|>"};
    const auto add = [&](const std::vector<std::string>& more) {
        names.insert(names.end(), more.begin(), more.end());
    };
    const auto reserve = [&](const char* prefix, int first, int end) {
        for (int i = first; i < end; ++i)
            names.push_back(fmt::format("<|{}reserved_special_token_{}|>", prefix, i));
    };
    reserve("text_post_train_", 0, 6);
    add({"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
    reserve("text_post_train_", 8, 69);
    add({"<|image_start|>", "<|image_end|>"});
    reserve("vision_", 0, 2);
    add({"<|tile_x_separator|>", "<|tile_y_separator|>"});
    reserve("vision_", 2, 6);
    add({"<|image|>"});
    reserve("vision_", 6, 7);
    add({"<|patch|>"});
    reserve("vision_", 7, 1048);
    reserve("reasoning_", 0, 8);
    add({"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
    reserve("", 0, 2048 - int(names.size()));
    return numbered(names, ranks);
}

std::vector<Added> o200k_special_tokens(int32_t ranks) {
    return {special_token("<|endoftext|>", ranks + 1), special_token("<|endofprompt|>", ranks + 20)};
}

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> all = {
        {"llama3", 128000, llama3_pattern, llama3_special_tokens, "<|begin_of_text|>", "<|end_of_text|>"},
        {"llama4", 200000, o200k_pattern, llama4_special_tokens, "<|begin_of_text|>", "<|end_of_text|>"},
        {"o200k", 199998, o200k_pattern, o200k_special_tokens, "", "<|endoftext|>"}};
    return all;
}

struct Ranked {
    std::string bytes;
    int32_t rank;
};

// "IQ== 0"
std::optional<Ranked> ranked_of(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos) return std::nullopt;
    auto bytes = bytes_of_base64(line.substr(0, space));
    int32_t rank = -1;
    const char* const end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
    if (!bytes || error != std::errc() || stop != end || rank < 0 || rank >= most_token_ids)
        return std::nullopt;
    return Ranked{std::move(*bytes), rank};
}

const Kind& kind_of(const std::string& file, int32_t ranks, const TokenizerConfig& config) {
    std::vector<std::string> names;
    for (const Kind& kind : kinds()) {
        if (config.tiktoken ? *config.tiktoken == kind.name : ranks == kind.ranks) return kind;
        names.emplace_back(kind.name);
    }
    if (config.tiktoken)
        throw ConfigError(
            "{}: tokenizer_config.json in the same folder has \"tiktoken\": \"{}\"; it must be one of {}",
            file, *config.tiktoken, join(names, ", "));
    throw ConfigError(
        "{}: a tiktoken file contains no regular expression and no special tokens. Coeus knows those of "
        "llama3 (128,000 ranks), llama4 (200,000 ranks) and o200k (199,998 ranks), but this file has {}. "
        "Choose "
        "one of them in "
        "tokenizer_config.json in the same folder: {{\"tiktoken\": \"llama3\"}}; if its special tokens "
        "differ, add added_tokens_decoder, bos_token and eos_token",
        file, with_commas(ranks));
}

// Every way to split a token into two others. Merges with equal ranks are applied from the left.
std::vector<Bpe::Merge> merges_of(const std::vector<Ranked>& tokens) {
    std::unordered_map<std::string_view, int32_t> ranks;
    for (const Ranked& token : tokens) ranks.emplace(token.bytes, token.rank);
    std::vector<Bpe::Merge> merges;
    for (const Ranked& token : tokens) {
        const std::string_view bytes = token.bytes;
        for (size_t cut = 1; cut < bytes.size(); ++cut) {
            const auto left = ranks.find(bytes.substr(0, cut)), right = ranks.find(bytes.substr(cut));
            if (left != ranks.end() && right != ranks.end())
                merges.push_back({left->second, right->second, token.rank, token.rank});
        }
    }
    return merges;
}

}  // namespace

bool is_tiktoken(const std::string& content) {
    return ranked_of(std::string_view(content).substr(0, content.find('\n'))).has_value();
}

BpeDescription read_tiktoken(const std::string& file, const std::string& content,
                             const TokenizerConfig& config) {
    std::vector<Ranked> tokens;
    int64_t number = 0;
    for (std::string_view rest = content; !rest.empty();) {
        ++number;
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        if (line.empty() || line == "\r") continue;
        auto ranked = ranked_of(line);
        if (!ranked)
            throw ConfigError("{}: line {} must be a token in base64 and its rank, but is \"{}\"", file,
                              number, line.substr(0, 80));
        tokens.push_back(std::move(*ranked));
    }
    const Kind& kind = kind_of(file, int32_t(tokens.size()), config);

    BpeDescription out;
    out.file = file;
    int32_t behind_last = 0;
    for (const Ranked& token : tokens) {
        out.vocab.push_back({token.rank, token.bytes});
        behind_last = std::max(behind_last, token.rank + 1);
    }
    out.merges = merges_of(tokens);
    out.options.whole_pieces = true;
    out.add_split({kind.pattern});
    out.added_in_documents = false;
    out.added = config.added.empty() ? kind.special_tokens(behind_last) : config.added;
    const auto or_of_kind = [&](const std::optional<std::string>& given, const std::string& of_kind) {
        return given || !config.added.empty() || of_kind.empty() ? given : std::optional(of_kind);
    };
    out.set_special(or_of_kind(config.bos, kind.bos), or_of_kind(config.eos, kind.eos));
    return out;
}

}  // namespace coeus
