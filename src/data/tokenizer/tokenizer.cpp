// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/tokenizer.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/file/hash.hpp"
#include "model.hpp"
#include "open.hpp"

#include <algorithm>

namespace coeus {

struct Tokenizer::Parts {
    std::string place, hash, earlier_hash, kind;
    std::unique_ptr<const TokenizerModel> model;
    Ends document_ends;
};

namespace {

// The template's tokens, and BOS and EOS if the template does not contain them.
Tokenizer::Ends document_ends_of(const Vocabulary& vocabulary) {
    Tokenizer::Ends ends = vocabulary.frame;
    const auto in_frame = [&](int32_t id) {
        const auto& [before, after] = vocabulary.frame;
        return std::count(before.begin(), before.end(), id) + std::count(after.begin(), after.end(), id) > 0;
    };
    if (vocabulary.bos && !in_frame(*vocabulary.bos))
        ends.before.insert(ends.before.begin(), *vocabulary.bos);
    if (vocabulary.eos && !in_frame(*vocabulary.eos)) ends.after.push_back(*vocabulary.eos);
    return ends;
}

std::vector<int32_t> encode_any(TokenizerModel::Encoder& encoder, std::string_view text) {
    std::vector<int32_t> ids;
    if (valid_utf8_prefix(text) == text.size()) {
        encoder.encode(text, ids);
    } else {
        int64_t replaced = 0;
        encoder.encode(repaired_utf8(text, replaced), ids);
    }
    return ids;
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& place) {
    OpenedTokenizer opened = open_tokenizer(place);
    const Vocabulary& vocabulary = opened.model->vocabulary();
    Ends ends = document_ends_of(vocabulary);
    parts_ = std::make_unique<const Parts>(Parts{place.string(), hash_text(opened.hash),
                                                 hash_text(opened.earlier_hash), opened.kind,
                                                 std::move(opened.model), std::move(ends)});
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

bool Tokenizer::is_at(const std::filesystem::path& place) {
    return holds_tokenizer(place);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
    return encode_any(*parts_->model->encoder(), text);
}

std::vector<int32_t> Tokenizer::encode_prompt(std::string_view text) const {
    return encode_any(*parts_->model->prompt_encoder(), text);
}

const std::string& Tokenizer::kind() const {
    return parts_->kind;
}

std::vector<int32_t> Tokenizer::special_ids() const {
    const std::vector<bool>& special = parts_->model->vocabulary().special;
    std::vector<int32_t> ids;
    for (size_t id = 0; id < special.size(); ++id)
        if (special[id]) ids.push_back(int32_t(id));
    return ids;
}

const std::string& Tokenizer::bytes_of(int32_t id) const {
    const auto& bytes = parts_->model->vocabulary().bytes;
    if (id < 0 || id >= vocab_size() || !bytes[size_t(id)])
        throw ConfigError("the tokenizer in {} has no token with the id {}", parts_->place, id);
    return *bytes[size_t(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
    std::string text;
    Stream stream(*this, skip_special);
    for (const int32_t id : ids) text += stream.push(id);
    return text + stream.finish();
}

int64_t Tokenizer::vocab_size() const {
    return int64_t(parts_->model->vocabulary().bytes.size());
}
std::optional<int32_t> Tokenizer::bos_id() const {
    return parts_->model->vocabulary().bos;
}
std::optional<int32_t> Tokenizer::eos_id() const {
    return parts_->model->vocabulary().eos;
}
const Tokenizer::Ends& Tokenizer::own_ends() const {
    return parts_->model->vocabulary().frame;
}
const Tokenizer::Ends& Tokenizer::document_ends() const {
    return parts_->document_ends;
}
const std::string& Tokenizer::notice() const {
    return parts_->model->vocabulary().notice;
}
const std::string& Tokenizer::hash() const {
    return parts_->hash;
}
const std::string& Tokenizer::earlier_hash() const {
    return parts_->earlier_hash;
}
const std::string& Tokenizer::folder() const {
    return parts_->place;
}
bool Tokenizer::can_encode_parts() const {
    return parts_->model->can_encode_parts();
}

struct Tokenizer::Encoder::State {
    std::unique_ptr<TokenizerModel::Encoder> encoder;
};

Tokenizer::Encoder::Encoder(const Tokenizer& tokenizer)
    : state_(std::make_unique<State>(State{tokenizer.parts_->model->encoder()})) {}
Tokenizer::Encoder::~Encoder() = default;
Tokenizer::Encoder::Encoder(Encoder&&) noexcept = default;

void Tokenizer::Encoder::encode(std::string_view text, std::vector<int32_t>& ids) {
    state_->encoder->encode(text, ids);
}

size_t Tokenizer::Encoder::encode_part(std::string_view text, size_t begin, size_t end,
                                       std::vector<int32_t>& ids) {
    return state_->encoder->encode_part(text, begin, end, ids);
}

struct Tokenizer::Stream::State {
    std::unique_ptr<TokenizerModel::Decoder> decoder;
};

Tokenizer::Stream::Stream(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special),
      state_(std::make_unique<State>(State{tokenizer.parts_->model->decoder()})) {}
Tokenizer::Stream::~Stream() = default;
Tokenizer::Stream::Stream(Stream&&) noexcept = default;
Tokenizer::Stream& Tokenizer::Stream::operator=(Stream&&) noexcept = default;

std::string Tokenizer::Stream::push(int32_t id) {
    const std::string& bytes = tokenizer_->bytes_of(id);
    if (skip_special_ && tokenizer_->parts_->model->vocabulary().special[size_t(id)]) return "";
    return state_->decoder->push(id, bytes);
}

std::string Tokenizer::Stream::finish() {
    return state_->decoder->finish();
}

}  // namespace coeus
