// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/tokenizer.hpp"

#include "../utf8.hpp"
#include "added_tokens.hpp"
#include "bpe.hpp"
#include "byte_symbols.hpp"
#include "coeus/base/error.hpp"
#include "coeus/file/hash.hpp"
#include "pre_tokenizer.hpp"
#include "tokenizer_json.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace coeus {

struct Tokenizer::Parts {
    std::string folder, hash;
    std::array<AddedTokens, 2> added;  // those not `normalized` first, as Hugging Face matches them
    PreTokenizer pre_tokenizer;
    Bpe bpe;
    std::vector<std::optional<std::string>> bytes;  // of each id, also of added tokens
    std::vector<bool> special;
    std::optional<int32_t> bos, eos;
};

namespace {

using Ids = std::unordered_map<std::string, int32_t>;

// A token with any character that is no byte symbol stands for its own text.
std::string bytes_or_text(const std::string& content) {
    return bytes_of_symbols(content).value_or(content);
}

void put(std::vector<std::optional<std::string>>& all, int32_t id, std::string bytes) {
    if (all.size() <= size_t(id)) all.resize(size_t(id) + 1);
    all[size_t(id)] = std::move(bytes);
}

Bpe bpe_of(const TokenizerFile& file, const Ids& ids) {
    std::vector<std::optional<std::string>> bytes;
    for (const auto& [symbols, id] : file.vocab)
        if (auto spelled = bytes_of_symbols(symbols)) put(bytes, id, std::move(*spelled));
    std::vector<Bpe::Merge> merges;
    merges.reserve(file.merges.size());
    for (const auto& [left, right] : file.merges) {
        const auto l = ids.find(left), r = ids.find(right), both = ids.find(left + right);
        if (l == ids.end() || r == ids.end() || both == ids.end())
            throw ConfigError("{}: model.merges[{}]: \"{}\" + \"{}\" is not made of and in the vocabulary",
                              file.file, merges.size(), left, right);
        merges.push_back({l->second, r->second, both->second});
    }
    return {bytes, merges, file.ignore_merges};
}

PreTokenizer pre_tokenizer_of(const TokenizerFile& file) {
    std::vector<Pattern> patterns;
    for (const std::string& pattern : file.patterns) patterns.emplace_back(pattern, file.file);
    return PreTokenizer(std::move(patterns));
}

AddedTokens added_of(const TokenizerFile& file, bool normalized) {
    std::vector<AddedTokens::Token> tokens;
    for (const auto& token : file.added)
        if (token.normalized == normalized) tokens.push_back({token.content, token.id});
    return AddedTokens(std::move(tokens));
}

std::optional<int32_t> special_id(const TokenizerFile& file, const Ids& ids, const char* key,
                                  const std::optional<std::string>& content) {
    if (!content) return std::nullopt;
    const auto found = ids.find(*content);
    if (found == ids.end())
        throw ConfigError("{}: {} of tokenizer_config.json is \"{}\", which is no token", file.file, key,
                          *content);
    return found->second;
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& folder) {
    const TokenizerFile file = read_tokenizer(folder);
    Ids ids(file.vocab.begin(), file.vocab.end());
    Bpe bpe = bpe_of(file, ids);
    auto parts = std::make_unique<Parts>(Parts{folder.string(),
                                               hash_text(hash_of(file.content)),
                                               {added_of(file, false), added_of(file, true)},
                                               pre_tokenizer_of(file),
                                               std::move(bpe),
                                               {},
                                               {},
                                               {},
                                               {}});
    for (const auto& [symbols, id] : file.vocab) put(parts->bytes, id, bytes_or_text(symbols));
    for (const auto& token : file.added) {
        ids[token.content] = token.id;
        put(parts->bytes, token.id, bytes_or_text(token.content));
    }
    if (parts->bytes.empty()) throw ConfigError("{}: the vocabulary is empty", file.file);
    parts->special.resize(parts->bytes.size());
    for (const auto& token : file.added) parts->special[size_t(token.id)] = token.special;
    parts->bos = special_id(file, ids, "bos_token", file.bos);
    // where one token is both, it begins documents and nothing ends them, as in torchtitan
    if (file.eos != file.bos) parts->eos = special_id(file, ids, "eos_token", file.eos);
    parts_ = std::move(parts);
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
    std::vector<int32_t> ids;
    Encoder encoder(*this);
    if (valid_utf8_prefix(text) == text.size()) {
        encoder.encode(text, ids);
    } else {
        int64_t replaced = 0;
        encoder.encode(repaired_utf8(text, replaced), ids);
    }
    return ids;
}

const std::string& Tokenizer::bytes_of(int32_t id) const {
    if (id < 0 || id >= vocab_size() || !parts_->bytes[size_t(id)])
        throw ConfigError("the tokenizer in {} has no token {}", parts_->folder, id);
    return *parts_->bytes[size_t(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
    std::string bytes;
    for (const int32_t id : ids) {
        const std::string& own = bytes_of(id);
        if (!(skip_special && parts_->special[size_t(id)])) bytes += own;
    }
    int64_t replaced = 0;
    return repaired_utf8(bytes, replaced);
}

int64_t Tokenizer::vocab_size() const {
    return int64_t(parts_->bytes.size());
}
std::optional<int32_t> Tokenizer::bos_id() const {
    return parts_->bos;
}
std::optional<int32_t> Tokenizer::eos_id() const {
    return parts_->eos;
}
const std::string& Tokenizer::hash() const {
    return parts_->hash;
}
const std::string& Tokenizer::folder() const {
    return parts_->folder;
}
bool Tokenizer::can_encode_parts() const {
    return parts_->pre_tokenizer.can_resume() && !parts_->added[0].contain_space() &&
           !parts_->added[1].contain_space();
}

struct Tokenizer::Encoder::State {
    const Parts& parts;
    PieceScan scan;
    Bpe::Encoder bpe;

    explicit State(const Parts& p) : parts(p), scan(p.pre_tokenizer), bpe(p.bpe) {}

    // Appends the ids of text[at, stop) up to the first piece that ends at or behind `enough`; returns where.
    // Levels are the two kinds of added tokens, then the pieces between them.
    size_t run(size_t level, std::string_view text, size_t at, size_t stop, size_t enough,
               std::vector<int32_t>& ids) {
        if (level == parts.added.size()) {
            size_t reached = at;
            scan.pieces(text.substr(at, stop - at), [&](size_t begin, size_t end) {
                bpe.encode(text.substr(at + begin, end - begin), ids);
                reached = at + end;
                return reached < enough;
            });
            return reached;
        }
        while (at < stop && at < enough) {
            const AddedTokens::Match match = parts.added[level].next(text.substr(0, stop), at);
            at = run(level + 1, text, at, match.begin, enough, ids);
            if (match.id < 0 || at >= enough) break;
            ids.push_back(match.id);
            at = match.end;
        }
        return at;
    }
};

Tokenizer::Encoder::Encoder(const Tokenizer& tokenizer)
    : state_(std::make_unique<State>(*tokenizer.parts_)) {}
Tokenizer::Encoder::~Encoder() = default;
Tokenizer::Encoder::Encoder(Encoder&&) noexcept = default;

void Tokenizer::Encoder::encode(std::string_view text, std::vector<int32_t>& ids) {
    state_->run(0, text, 0, text.size(), text.size(), ids);
}

size_t Tokenizer::Encoder::encode_part(std::string_view text, size_t begin, size_t end,
                                       std::vector<int32_t>& ids) {
    // Some text behind the part is shown to the expression, which looks ahead. Where a piece reaches the end
    // of what was shown, it might be longer: show more.
    const size_t before = ids.size();
    for (size_t shown = 256;; shown *= 16) {
        size_t stop = std::min(text.size(), end + shown);
        while (stop < text.size() && (uint8_t(text[stop]) & 0xc0) == 0x80) ++stop;
        const size_t reached = state_->run(0, text, begin, stop, end, ids);
        if (reached < stop || stop == text.size()) return reached;
        ids.resize(before);
    }
}

std::string Tokenizer::Stream::push(int32_t id) {
    const std::string& bytes = tokenizer_->bytes_of(id);
    if (skip_special_ && tokenizer_->parts_->special[size_t(id)]) return "";
    held_ += bytes;
    // at most three bytes can wait for the rest of their character
    size_t waiting = 0;
    for (size_t n = 1; n <= std::min<size_t>(3, held_.size()); ++n)
        if (incomplete_utf8(std::string_view(held_).substr(held_.size() - n))) waiting = n;
    std::string ready = held_.substr(0, held_.size() - waiting);
    held_.erase(0, ready.size());
    int64_t replaced = 0;
    return repaired_utf8(ready, replaced);
}

std::string Tokenizer::Stream::finish() {
    int64_t replaced = 0;
    return repaired_utf8(std::exchange(held_, ""), replaced);
}

}  // namespace coeus
