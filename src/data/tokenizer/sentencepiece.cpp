// SPDX-License-Identifier: Apache-2.0
#include "sentencepiece.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"

#include <algorithm>
#include <iterator>
#include <sentencepiece_processor.h>
#include <utility>

namespace coeus {

namespace {

using Processor = sentencepiece::SentencePieceProcessor;

const std::string space_mark = "\u2581";

std::string with_spaces(std::string piece) {
    for (size_t at = piece.find(space_mark); at != std::string::npos; at = piece.find(space_mark, at))
        piece.replace(at, space_mark.size(), " ");
    return piece;
}

std::unique_ptr<const Processor> load(const std::string& file, std::string_view content) {
    auto processor = std::make_unique<Processor>();
    const auto status = processor->LoadFromSerializedProto(content);
    if (!status.ok() || processor->GetPieceSize() == 0)
        throw ConfigError(
            "{}: is not a tokenizer: it is neither a tokenizer.json, nor a tiktoken file, nor a "
            "SentencePiece model",
            file);
    return processor;
}

std::string bytes_of(const Processor& processor, int id) {
    const std::string& piece = processor.IdToPiece(id);
    if (processor.IsControl(id)) return "";
    if (processor.IsUnknown(id)) return processor.DecodeIds({id});
    if (processor.IsByte(id))
        return std::string(1, char(std::stoi(piece.substr(3, 2), nullptr, 16)));  // <0x0A>
    return with_spaces(piece);
}

using AddedBeside = std::vector<BpeDescription::Added>;

AddedBeside missing_in(const Processor& processor, const AddedBeside& added) {
    AddedBeside missing;
    std::copy_if(added.begin(), added.end(), std::back_inserter(missing),
                 [&](const auto& token) { return token.token.id >= processor.GetPieceSize(); });
    return missing;
}

Vocabulary vocabulary_of(const Processor& processor, const AddedBeside& added) {
    Vocabulary vocabulary;
    for (int id = 0; id < processor.GetPieceSize(); ++id)
        vocabulary.put(id, bytes_of(processor, id), processor.IsControl(id));
    const auto known = [](int id) { return id < 0 ? std::nullopt : std::optional<int32_t>(id); };
    vocabulary.bos = known(processor.bos_id());
    vocabulary.eos = known(processor.eos_id());
    for (const auto& token : added) vocabulary.put(token.token.id, token.token.content, token.special);
    return vocabulary;
}

// How decoding treats spaces at the beginning of a text. This is determined by experiments with the library.
struct Start {
    bool drops_space = false;  // drops the first token's space, which encoding adds
    bool drops_more = false;   // also drops those of later tokens, until there is other text
};

Start start_of(const Processor& processor) {
    const int space = processor.PieceToId(space_mark);
    if (processor.IsUnknown(space)) return {true, false};
    return {processor.DecodeIds({space}).empty(), processor.DecodeIds({space, space}).empty()};
}

// Each byte that is not valid UTF-8 becomes U+FFFD. As in the library, a sequence of bytes ends at the next
// token of another kind.
class PieceDecoder : public TokenizerModel::Decoder {
public:
    PieceDecoder(const Processor& processor, Start start) : processor_(processor), start_(start) {}

    std::string push(int32_t id, std::string_view bytes) override {
        const bool added = id >= processor_.GetPieceSize();
        if (!added && processor_.IsByte(id)) {
            held_ += bytes;
            return noted(release(false));
        }
        std::string text = release(true);
        at_start_ = at_start_ && text.empty();
        const bool droppable = !added && !processor_.IsControl(id) && !processor_.IsUnknown(id);
        if (at_start_ && droppable && start_.drops_space && bytes.starts_with(' ')) {
            bytes.remove_prefix(1);
            at_start_ = start_.drops_more;
        }
        return noted(text.append(bytes));
    }

    std::string finish() override { return release(true); }

private:
    std::string noted(std::string text) {
        at_start_ = at_start_ && text.empty();
        return text;
    }

    std::string release(bool all) {
        std::string text;
        while (!held_.empty()) {
            const size_t valid = valid_utf8_prefix(held_);
            text.append(held_, 0, valid);
            held_.erase(0, valid);
            if (held_.empty() || (!all && incomplete_utf8(held_))) break;
            text += "\uFFFD";
            held_.erase(0, 1);
        }
        return text;
    }

    const Processor& processor_;
    Start start_;
    bool at_start_ = true;
    std::string held_;
};

// Long texts are encoded in parts, because the library needs about 100 bytes of memory per byte of text, and
// its time grows faster than the length of the text. A part begins with the space before a word.
class PieceEncoder : public TokenizerModel::Encoder {
public:
    /// `later`: encodes all parts of a text but the first; nullptr: no parts. `next`: begins the text after
    /// an added token.
    PieceEncoder(const AddedTokens& added, const Processor& first, const Processor* later,
                 const Processor& next)
        : added_(added), first_(first), later_(later), next_(next) {}

    void encode(std::string_view text, std::vector<int32_t>& ids) override {
        added_.split(
            text,
            [&](std::string_view part) {
                encode_plain(part.data() == text.data() ? &first_ : &next_, part, ids);
            },
            [&](int32_t id) { ids.push_back(id); });
    }

private:
    void encode_plain(const Processor* processor, std::string_view text, std::vector<int32_t>& ids) {
        while (!text.empty()) {
            const std::string_view part = text.substr(0, part_end(text));
            append(*processor, part, ids);
            text.remove_prefix(part.size());
            processor = later_;
        }
    }

    static constexpr size_t part_bytes = 2048;

    // The position of a space between ASCII letters or digits, across which normalization has no effect.
    size_t part_end(std::string_view text) const {
        if (!later_) return text.size();
        for (size_t at = part_bytes; at + 1 < text.size(); ++at)
            if (text[at] == ' ' && is_plain(text[at - 1]) && is_plain(text[at + 1])) return at;
        return text.size();
    }

    static bool is_plain(char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    }

    void append(const Processor& processor, std::string_view part, std::vector<int32_t>& ids) {
        const auto status = processor.Encode(part, &ids_);
        if (!status.ok()) throw SystemError("SentencePieceProcessor::Encode: " + status.ToString());
        ids.insert(ids.end(), ids_.begin(), ids_.end());
    }

    const AddedTokens& added_;
    const Processor& first_;
    const Processor* later_;
    const Processor& next_;
    std::vector<int> ids_;
};

// True if spaces are only at the beginning of pieces. Then no piece extends across the beginning of a word.
bool spaces_begin_pieces(const Processor& processor) {
    if (processor.IsUnknown(processor.PieceToId(space_mark))) return false;
    for (int id = 0; id < processor.GetPieceSize(); ++id) {
        std::string_view piece = processor.IdToPiece(id);
        while (piece.starts_with(space_mark)) piece.remove_prefix(space_mark.size());
        if (piece.find(space_mark) != std::string_view::npos || piece.find(' ') != std::string_view::npos)
            return false;
    }
    return true;
}

// The same model, which puts no space in front of a text: data appended to a protobuf message override its
// fields, here normalizer_spec.add_dummy_prefix = false.
std::unique_ptr<const Processor> load_without_added_space(const std::string& file,
                                                          const std::string& content) {
    return load(file, content + "\x1a\x02\x18" + std::string(1, '\0'));
}

class SentencePiece : public TokenizerModel {
public:
    /// `added`: tokens whose ids the model does not have.
    SentencePiece(const std::string& file, const std::string& content,
                  std::unique_ptr<const Processor> processor, const AddedBeside& added, bool legacy)
        : TokenizerModel(vocabulary_of(*processor, added)),
          processor_(std::move(processor)),
          next_(processor_.get()),
          start_(start_of(*processor_)) {
        const auto without_added_space = [&] {
            if (!without_added_space_) without_added_space_ = load_without_added_space(file, content);
            return without_added_space_.get();
        };
        if (!added.empty() && !legacy) next_ = without_added_space();
        std::vector<AddedTokens::Token> tokens;
        for (const auto& token : added) tokens.push_back(token.token);
        added_ = AddedTokens(std::move(tokens));
        if (!spaces_begin_pieces(*processor_)) return;
        const std::vector<int> letter = processor_->EncodeAsIds("a");
        if (letter.empty()) return;
        const bool adds_space = processor_->IdToPiece(letter[0]).starts_with(space_mark);
        // decoding may drop the space at the beginning of a part, then encoding adds it again
        if (!start_.drops_more)
            later_ = without_added_space();
        else if (adds_space)
            later_ = processor_.get();
    }

    std::unique_ptr<Encoder> encoder() const override {
        return std::make_unique<PieceEncoder>(added_, *processor_, later_, *next_);
    }
    std::unique_ptr<Decoder> decoder() const override {
        return std::make_unique<PieceDecoder>(*processor_, start_);
    }

private:
    std::unique_ptr<const Processor> processor_, without_added_space_;
    const Processor* next_;             // encodes the text after an added token
    const Processor* later_ = nullptr;  // encodes all parts of a text but the first; nullptr: no parts
    Start start_;
    AddedTokens added_;
};

}  // namespace

std::unique_ptr<const TokenizerModel> make_sentencepiece(const std::string& file, const std::string& content,
                                                         const AddedBeside& added, bool legacy) {
    auto processor = load(file, content);
    const AddedBeside missing = missing_in(*processor, added);
    return std::make_unique<SentencePiece>(file, content, std::move(processor), missing, legacy);
}

std::vector<BpeDescription::Added> missing_in_sentencepiece(const std::string& file,
                                                            const std::string& content,
                                                            const AddedBeside& added) {
    return missing_in(*load(file, content), added);
}

}  // namespace coeus
