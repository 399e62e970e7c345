// SPDX-License-Identifier: Apache-2.0
#include "byte_bpe.hpp"

#include "byte_symbols.hpp"
#include "characters.hpp"
#include "coeus/base/error.hpp"
#include "pre_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace coeus {

namespace {

// A change of the whole text. Returns the text itself if nothing changes, else a view of `buffer`.
using TextStep = std::string_view (*)(std::string_view text, std::string& buffer);

std::string_view with_space_in_front(std::string_view text, std::string& buffer) {
    if (text.starts_with(' ')) return text;
    buffer.assign(1, ' ').append(text);
    return buffer;
}

// The added tokens that are searched for before normalization, and those that are searched for after it.
using AddedPair = std::array<AddedTokens, 2>;

AddedPair added_of(const ByteBpeDescription& description) {
    std::array<std::vector<AddedTokens::Token>, 2> tokens;
    std::string buffer;
    for (const auto& added : description.added) {
        AddedTokens::Token token = added.token;
        if (added.normalized && description.nfc) token.content = in_nfc(token.content, buffer);
        tokens[added.normalized].push_back(std::move(token));
    }
    return {AddedTokens(std::move(tokens[0])), AddedTokens(std::move(tokens[1]))};
}

Bpe bpe_of(const ByteBpeDescription& description) {
    std::vector<std::optional<std::string>> bytes;
    for (const auto& token : description.vocab) {
        if (!token.mergeable) continue;
        if (bytes.size() <= size_t(token.id)) bytes.resize(size_t(token.id) + 1);
        bytes[size_t(token.id)] = token.bytes;
    }
    return {bytes, description.merges, description.whole_pieces};
}

Vocabulary vocabulary_of(const ByteBpeDescription& description) {
    Vocabulary vocabulary;
    const auto has = [&](int32_t id) {
        return size_t(id) < vocabulary.bytes.size() && vocabulary.bytes[size_t(id)].has_value();
    };
    const auto put = [&](int32_t id, const std::string& bytes, bool special) {
        if (has(id) && *vocabulary.bytes[size_t(id)] != bytes)
            throw ConfigError("{}: two tokens have the id {}: \"{}\" and \"{}\"", description.file, id,
                              *vocabulary.bytes[size_t(id)], bytes);
        vocabulary.put(id, bytes, special);
    };
    for (const auto& token : description.vocab) put(token.id, token.bytes, false);
    for (const auto& added : description.added) put(added.token.id, added.bytes, added.special);
    if (vocabulary.bytes.empty()) throw ConfigError("{}: the vocabulary is empty", description.file);
    vocabulary.bos = description.bos;
    // if BOS and EOS are the same token, documents begin with it and have no EOS, as in torchtitan
    if (description.eos != description.bos) vocabulary.eos = description.eos;
    vocabulary.notice = description.notice;
    vocabulary.frame = description.frame;
    for (const auto& ids : {vocabulary.frame.before, vocabulary.frame.after})
        for (const int32_t id : ids)
            if (!has(id))
                throw ConfigError("{}: post_processor: its template adds the id {}, which is not a token",
                                  description.file, id);
    return vocabulary;
}

// Encodes text that is split as it is. A long text can be encoded in parts.
class PlainEncoder : public TokenizerModel::Encoder {
public:
    PlainEncoder(const AddedPair& added, const PreTokenizer& pre_tokenizer, const Bpe& bpe)
        : added_(added), scan_(pre_tokenizer.scan()), bpe_(bpe) {}

    void encode(std::string_view text, std::vector<int32_t>& ids) override {
        run(0, text, 0, text.size(), text.size(), ids);
    }

    size_t encode_part(std::string_view text, size_t begin, size_t end, std::vector<int32_t>& ids) override {
        // The regular expression looks ahead, so it gets some text after the part. A piece that reaches the
        // end of this text might really be longer: then try again with more text.
        const size_t before = ids.size();
        for (size_t shown = 256;; shown *= 16) {
            size_t stop = std::min(text.size(), end + shown);
            while (stop < text.size() && (uint8_t(text[stop]) & 0xc0) == 0x80) ++stop;
            const size_t reached = run(0, text, begin, stop, end, ids);
            if (reached < stop || stop == text.size()) return reached;
            ids.resize(before);
        }
    }

private:
    // Appends the ids of text[at, stop) up to the first piece that ends at or after `enough`, and returns
    // the end of that piece. Levels 0 and 1 find the two kinds of added tokens, level 2 the pieces between
    // them.
    size_t run(size_t level, std::string_view text, size_t at, size_t stop, size_t enough,
               std::vector<int32_t>& ids) {
        if (at >= stop) return at;
        if (level == added_.size()) return run_pieces(text.substr(at, stop - at), at, enough, ids);
        const std::string_view shown = text.substr(0, stop);
        AddedTokens::Cursor cursor{at, at};
        while (at < stop && at < enough) {
            const AddedTokens::Match match = added_[level].next(shown, cursor);
            at = run(level + 1, text, at, match.begin, enough, ids);
            if (match.id < 0 || at >= enough) break;
            ids.push_back(match.id);
            at = cursor.taken;
        }
        return at;
    }

    size_t run_pieces(std::string_view text, size_t offset, size_t enough, std::vector<int32_t>& ids) {
        size_t reached = 0;
        scan_->pieces(text, 0, [&](size_t begin, size_t end) {
            bpe_.encode(text, begin, end, ids);
            reached = end;
            return offset + reached < enough;
        });
        return offset + reached;
    }

    const AddedPair& added_;
    std::unique_ptr<PieceScan> scan_;
    Bpe::Encoder bpe_;
};

// Encodes text that must be changed before it is split, by normalization or a space in front.
class ChangingEncoder : public TokenizerModel::Encoder {
public:
    ChangingEncoder(const AddedPair& added, const std::vector<TextStep>& normal_form,
                    const std::vector<TextStep>& before_pieces, const PreTokenizer& pre_tokenizer,
                    const Bpe& bpe)
        : added_(added),
          normal_form_(normal_form),
          before_pieces_(before_pieces),
          scan_(pre_tokenizer.scan()),
          bpe_(bpe) {}

    void encode(std::string_view text, std::vector<int32_t>& ids) override {
        const auto token = [&](int32_t id) { ids.push_back(id); };
        const auto pieces = [&](std::string_view part) {
            const std::string_view changed = apply(before_pieces_, part, buffers_[1]);
            scan_->pieces(changed, 0, [&](size_t begin, size_t end) {
                bpe_.encode(changed, begin, end, ids);
                return true;
            });
        };
        added_[0].split(
            text,
            [&](std::string_view part) {
                added_[1].split(apply(normal_form_, part, buffers_[0]), pieces, token);
            },
            token);
    }

private:
    static std::string_view apply(const std::vector<TextStep>& steps, std::string_view text,
                                  std::string& buffer) {
        for (const TextStep step : steps) text = step(text, buffer);
        return text;
    }

    const AddedPair& added_;
    const std::vector<TextStep>&normal_form_, &before_pieces_;
    std::unique_ptr<PieceScan> scan_;
    Bpe::Encoder bpe_;
    std::array<std::string, 2> buffers_;
};

class ByteBpe : public TokenizerModel {
public:
    explicit ByteBpe(const ByteBpeDescription& description)
        : TokenizerModel(vocabulary_of(description)),
          in_prompts_(added_of(description)),
          pre_tokenizer_(description.patterns, description.file),
          bpe_(bpe_of(description)) {
        if (description.added_in_documents) in_documents_ = in_prompts_;
        if (description.nfc) normal_form_ = {in_nfc};
        if (description.prefix_space) before_pieces_ = {with_space_in_front};
    }

    std::unique_ptr<Encoder> encoder() const override { return encoder_with(in_documents_); }
    std::unique_ptr<Encoder> prompt_encoder() const override { return encoder_with(in_prompts_); }
    bool can_encode_parts() const override {
        return is_plain() && pre_tokenizer_.can_resume() && in_documents_[0].simple() &&
               in_documents_[1].simple();
    }

private:
    bool is_plain() const { return normal_form_.empty() && before_pieces_.empty(); }
    std::unique_ptr<Encoder> encoder_with(const AddedPair& added) const {
        if (is_plain()) return std::make_unique<PlainEncoder>(added, pre_tokenizer_, bpe_);
        return std::make_unique<ChangingEncoder>(added, normal_form_, before_pieces_, pre_tokenizer_, bpe_);
    }

    AddedPair in_documents_, in_prompts_;
    std::vector<TextStep> normal_form_, before_pieces_;  // at most one each
    PreTokenizer pre_tokenizer_;
    Bpe bpe_;
};

// The bytes of a token. If it contains a character that is not a byte symbol, these are the bytes of its
// text.
std::string bytes_or_text(const std::string& content) {
    return bytes_of_symbols(content).value_or(content);
}

}  // namespace

void ByteBpeDescription::set_symbols(const std::vector<std::pair<std::string, int32_t>>& symbols,
                                     const std::vector<std::pair<std::string, std::string>>& pairs) {
    const std::unordered_map<std::string, int32_t> ids(symbols.begin(), symbols.end());
    for (const auto& [content, id] : symbols)
        vocab.push_back({id, bytes_or_text(content), bytes_of_symbols(content).has_value()});
    merges.reserve(pairs.size());
    for (const auto& [left, right] : pairs) {
        const auto l = ids.find(left), r = ids.find(right), both = ids.find(left + right);
        if (l == ids.end() || r == ids.end() || both == ids.end())
            throw ConfigError(
                "{}: model.merges[{}]: \"{}\" + \"{}\": both tokens and the result must be in the vocabulary",
                file, merges.size(), left, right);
        merges.push_back({l->second, r->second, both->second, int32_t(merges.size())});
    }
}

std::optional<int32_t> ByteBpeDescription::id_of(const std::string& content) const {
    for (const Added& candidate : added)
        if (candidate.token.content == content) return candidate.token.id;
    const std::string bytes = bytes_or_text(content);
    for (const Token& token : vocab)
        if (token.bytes == bytes) return token.id;
    return std::nullopt;
}

void ByteBpeDescription::set_special(const std::optional<std::string>& bos_token,
                                     const std::optional<std::string>& eos_token) {
    const auto find = [&](const char* key, const std::optional<std::string>& content) {
        if (!content) return std::optional<int32_t>();
        const auto is_it = [&](const Added& token) { return token.token.content == *content; };
        const bool is_added = std::any_of(added.begin(), added.end(), is_it);
        const auto id = id_of(*content);
        if (!id)
            throw ConfigError("{}: {} of tokenizer_config.json is \"{}\", which is not a token", file, key,
                              *content);
        if (!is_added) {
            added.push_back(special_token(*content, *id));
            added.back().bytes = bytes_or_text(*content);
        }
        return id;
    };
    bos = find("bos_token", bos_token);
    eos = find("eos_token", eos_token);
}

ByteBpeDescription::Added special_token(const std::string& content, int32_t id) {
    ByteBpeDescription::Added added;
    added.token.content = added.bytes = content;
    added.token.id = id;
    added.special = true;
    return added;
}

std::unique_ptr<const TokenizerModel> make_byte_bpe(const ByteBpeDescription& description) {
    return std::make_unique<ByteBpe>(description);
}

}  // namespace coeus
