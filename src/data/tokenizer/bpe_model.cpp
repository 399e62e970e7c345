// SPDX-License-Identifier: Apache-2.0
#include "bpe_model.hpp"

#include "byte_symbols.hpp"
#include "coeus/base/error.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace coeus {

namespace {

constexpr const char* word_mark = "\u2581";

// Applies steps in order, with a buffer for each.
class TextSteps {
public:
    explicit TextSteps(std::vector<TextStep> steps) : steps_(std::move(steps)), buffers_(steps_.size()) {}
    bool empty() const { return steps_.empty(); }
    std::string_view apply(std::string_view text, bool& first) {
        for (size_t i = 0; i < steps_.size(); ++i) text = steps_[i](text, first, buffers_[i]);
        return text;
    }

private:
    std::vector<TextStep> steps_;
    std::vector<std::string> buffers_;
};

TextSteps normalizing_steps(const BpeDescription& description) {
    std::vector<TextStep> steps;
    for (const auto& normalizer : description.normalizers) steps.push_back(normalizer.step);
    return TextSteps(std::move(steps));
}

// What is searched for, and what the token decodes to.
std::string searched_content(const BpeDescription& description, const BpeDescription::Added& added) {
    if (!added.normalized) return added.token.content;
    bool first = true;
    return std::string(normalizing_steps(description).apply(added.token.content, first));
}

// The added tokens that are searched for before normalization, and those that are searched for after it.
using AddedPair = std::array<AddedTokens, 2>;

AddedPair added_of(const BpeDescription& description) {
    std::array<std::vector<AddedTokens::Token>, 2> tokens;
    for (const auto& added : description.added) {
        AddedTokens::Token token = added.token;
        token.content = searched_content(description, added);
        if (!token.content.empty()) tokens[added.normalized].push_back(std::move(token));
    }
    return {AddedTokens(std::move(tokens[0])), AddedTokens(std::move(tokens[1]))};
}

Bpe bpe_of(const BpeDescription& description) {
    std::vector<std::optional<std::string>> texts;
    for (const auto& token : description.vocab) {
        if (!token.mergeable) continue;
        if (texts.size() <= size_t(token.id)) texts.resize(size_t(token.id) + 1);
        texts[size_t(token.id)] = token.text;
    }
    return {texts, description.merges, description.options};
}

// True if the mark of a space begins a symbol wherever it is after another character: no merge joins the two.
// Long texts without pieces can then be cut there.
bool marks_begin_words(const BpeDescription& description, const Bpe& bpe) {
    if (!description.options.characters || description.options.whole_pieces || !bpe.drops_nothing())
        return false;
    std::vector<bool> is_result;
    for (const Bpe::Merge& merge : description.merges) {
        if (is_result.size() <= size_t(merge.result)) is_result.resize(size_t(merge.result) + 1);
        is_result[size_t(merge.result)] = true;
    }
    bool has_mark = false;
    for (const auto& token : description.vocab) {
        std::string_view text = token.text;
        has_mark = has_mark || text == word_mark;
        if (size_t(token.id) >= is_result.size() || !is_result[size_t(token.id)]) continue;
        while (text.starts_with(word_mark)) text.remove_prefix(3);
        if (text.find(word_mark) != std::string_view::npos) return false;
    }
    return has_mark;
}

Vocabulary vocabulary_of(const BpeDescription& description) {
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
    const bool characters = description.options.characters;
    for (const auto& token : description.vocab)
        put(token.id, characters ? description.decoding.bytes_of(token.text) : token.text, false);
    for (const auto& added : description.added) {
        put(added.token.id, added.bytes, added.special);
        const std::string content = searched_content(description, added);
        if (content != added.token.content)
            vocabulary.put(added.token.id, description.decoding.bytes_of(content), added.special);
    }
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
        return offset + scan_->pieces(text, 0, [&](size_t begin, size_t end) {
            bpe_.encode(text, begin, end, ids);
            return offset + end < enough;
        });
    }

    const AddedPair& added_;
    std::unique_ptr<PieceScan> scan_;
    Bpe::Encoder bpe_;
};

// Encodes text that must be changed before or while it is split, or whose symbols are characters.
class ChangingEncoder : public TokenizerModel::Encoder {
public:
    ChangingEncoder(const AddedPair& added, const BpeDescription& description,
                    const std::vector<PreTokenizer>& pre_tokenizers, const Bpe& bpe, bool marks_begin_words)
        : added_(added),
          normalizers_(normalizing_steps(description)),
          stages_(description.stages),
          buffers_(stages_.size()),
          bpe_(bpe),
          marks_begin_words_(marks_begin_words) {
        for (const PreTokenizer& pre_tokenizer : pre_tokenizers) scans_.push_back(pre_tokenizer.scan());
    }

    void encode(std::string_view text, std::vector<int32_t>& ids) override {
        const auto token = [&](int32_t id) { ids.push_back(id); };
        added_[0].split(
            text,
            [&](std::string_view part) {
                bool first = part.data() == text.data();
                const std::string_view normal = normalizers_.apply(part, first);
                added_[1].split(
                    normal,
                    [&](std::string_view rest) { run(0, rest, first && rest.data() == normal.data(), ids); },
                    token);
            },
            token);
    }

private:
    void run(size_t stage, std::string_view text, bool first, std::vector<int32_t>& ids) {
        if (text.empty()) return;
        if (stage == stages_.size()) return encode_piece(text, ids);
        const TextStep& change = stages_[stage].change;
        const std::string_view changed = change ? change(text, first, buffers_[stage]) : text;
        scans_[stage]->pieces(changed, 0, [&](size_t begin, size_t end) {
            run(stage + 1, changed.substr(begin, end - begin), first && begin == 0, ids);
            return true;
        });
    }

    void encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
        size_t begin = 0;
        const std::string_view mark = word_mark;
        for (size_t at = 0; marks_begin_words_ && (at = piece.find(mark, at)) != std::string_view::npos;) {
            if (at > begin) bpe_.encode(piece, begin, at, ids);
            begin = at;
            while (piece.substr(at).starts_with(mark)) at += mark.size();
        }
        if (begin < piece.size()) bpe_.encode(piece, begin, piece.size(), ids);
    }

    const AddedPair& added_;
    TextSteps normalizers_;
    const std::vector<BpeDescription::Stage>& stages_;
    std::vector<std::unique_ptr<PieceScan>> scans_;
    std::vector<std::string> buffers_;
    Bpe::Encoder bpe_;
    bool marks_begin_words_;
};

// The description of a model that is made: the vocabulary and the merges are in other forms then.
BpeDescription without_vocabulary(const BpeDescription& description) {
    BpeDescription rest;
    rest.options.characters = description.options.characters;
    rest.normalizers = description.normalizers;
    rest.stages = description.stages;
    rest.decoding = description.decoding;
    return rest;
}

class BpeModel : public TokenizerModel {
public:
    explicit BpeModel(const BpeDescription& description)
        : TokenizerModel(vocabulary_of(description)),
          in_prompts_(added_of(description)),
          bpe_(bpe_of(description)),
          description_(without_vocabulary(description)),
          marks_begin_words_(marks_begin_words(description, bpe_)) {
        if (description.added_in_documents) in_documents_ = in_prompts_;
        for (const auto& stage : description.stages)
            pre_tokenizers_.emplace_back(stage.splits, description.file);
        if (!description.decoding.byte_symbols) prepare_decoding(description);
    }

    std::unique_ptr<Encoder> encoder() const override { return encoder_with(in_documents_); }
    std::unique_ptr<Encoder> prompt_encoder() const override { return encoder_with(in_prompts_); }
    bool can_encode_parts() const override {
        return is_plain() && pre_tokenizers_[0].can_resume() && in_documents_[0].simple() &&
               in_documents_[1].simple();
    }
    std::unique_ptr<Decoder> decoder() const override {
        if (description_.decoding.byte_symbols) return TokenizerModel::decoder();
        return make_piece_decoder(description_.decoding, is_byte_, first_bytes_);
    }

private:
    bool is_plain() const {
        return !description_.options.characters && description_.normalizers.empty() &&
               description_.stages.size() == 1 && !description_.stages[0].change;
    }
    std::unique_ptr<Encoder> encoder_with(const AddedPair& added) const {
        if (is_plain()) return std::make_unique<PlainEncoder>(added, pre_tokenizers_[0], bpe_);
        return std::make_unique<ChangingEncoder>(added, description_, pre_tokenizers_, bpe_,
                                                 marks_begin_words_);
    }
    void prepare_decoding(const BpeDescription& description) {
        const PieceDecoding& decoding = description.decoding;
        const bool first_differs = !decoding.removed_from_first.empty();
        is_byte_.resize(vocabulary().bytes.size());
        if (first_differs) first_bytes_.resize(is_byte_.size());
        const auto put = [&](int32_t id, const std::string& content) {
            is_byte_[size_t(id)] = decoding.byte_tokens && byte_of_token(content).has_value();
            if (first_differs) first_bytes_[size_t(id)] = decoding.first_bytes_of(content);
        };
        for (const auto& token : description.vocab) put(token.id, token.text);
        for (const auto& added : description.added) put(added.token.id, searched_content(description, added));
    }

    AddedPair in_documents_, in_prompts_;
    Bpe bpe_;
    BpeDescription description_;
    bool marks_begin_words_;
    std::vector<PreTokenizer> pre_tokenizers_;  // one for each stage
    std::vector<bool> is_byte_;                 // see make_piece_decoder
    std::vector<std::string> first_bytes_;
};

}  // namespace

void BpeDescription::add_change(TextStep change) {
    if (stages.back().change || !stages.back().splits.empty()) stages.emplace_back();
    stages.back().change = std::move(change);
}

void BpeDescription::set_symbols(const std::vector<std::pair<std::string, int32_t>>& symbols,
                                 const std::vector<std::pair<std::string, std::string>>& pairs) {
    const std::unordered_map<std::string, int32_t> ids(symbols.begin(), symbols.end());
    for (const auto& [content, id] : symbols) {
        const auto bytes = options.characters ? content : bytes_of_symbols(content);
        vocab.push_back({id, bytes.value_or(content), bytes.has_value()});
    }
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

std::optional<int32_t> BpeDescription::id_of(const std::string& content) const {
    for (const Added& candidate : added)
        if (candidate.token.content == content) return candidate.token.id;
    const std::string text = options.characters ? content : bytes_of_symbols(content).value_or(content);
    for (const Token& token : vocab)
        if (token.text == text) return token.id;
    return std::nullopt;
}

void BpeDescription::set_special(const std::optional<std::string>& bos_token,
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
            added.back().bytes = decoding.bytes_of(*content);
        }
        return id;
    };
    bos = find("bos_token", bos_token);
    eos = find("eos_token", eos_token);
}

BpeDescription::Added special_token(const std::string& content, int32_t id) {
    BpeDescription::Added added;
    added.token.content = added.bytes = content;
    added.token.id = id;
    added.special = true;
    return added;
}

std::unique_ptr<const TokenizerModel> make_bpe_model(const BpeDescription& description) {
    return std::make_unique<BpeModel>(description);
}

}  // namespace coeus
