// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/validation_prompts.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/ignored_label.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/generate/prompts.hpp"
#include "coeus/train/validation_tokenizer.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

namespace {

constexpr const char* option = "validation.prompts";

// The rows of this data rank, among those of all: ranks take prompts in turn.
std::vector<size_t> rows_here(const Mesh& mesh, size_t texts) {
    std::vector<size_t> rows;
    for (auto row = size_t(mesh.rank(axis::dp)); row < texts; row += size_t(mesh.size(axis::dp)))
        rows.push_back(row);
    return rows;
}

}  // namespace

struct ValidationPrompts::Text {
    std::vector<int32_t> ids;  // with the prompt's
    size_t prompt = 0;         // number of the prompt's ids
    bool is_open = true;
    bool is_finite = true;
};

std::vector<ValidationPrompt> read_validation_prompts(const Config& config, const DecoderConfig& model) {
    const Tokenizer tokenizer = validation_tokenizer(config, model, option);
    const std::string& file = config.validation.prompts;
    const int64_t seq_len = config.validation.seq_len;
    std::vector<ValidationPrompt> prompts;
    for (Prompt& prompt : read_prompts(file)) {
        const std::string name = fmt::format("{} = \"{}\", line {}: the prompt", option, file, prompt.line);
        std::vector<int32_t> ids = prompt_ids(prompt, tokenizer, name);
        if (int64_t(ids.size()) >= seq_len)
            throw ConfigError(
                "{} has {} tokens, and a sequence must have room for one more; shorten the prompt, or set "
                "validation.seq_len = {} or more (it is {})",
                name, ids.size(), ids.size() + 1, seq_len);
        prompts.push_back({std::move(prompt.text), std::move(ids)});
    }
    return prompts;
}

ValidationPrompts::ValidationPrompts(const Config& config, const DecoderConfig& model,
                                     const Communicator& world)
    : sequences_(config.validation.local_batch_size),
      seq_len_(config.validation.seq_len),
      length_(config.validation.sample_length),
      document_mask_(config.training.document_mask) {
    std::vector<int32_t> of_tokenizer, lengths, ids;
    on_first_rank(world, [&] {
        prompts_ = read_validation_prompts(config, model);
        tokenizer_.emplace(config.model.tokenizer());
        of_tokenizer = {int32_t(tokenizer_->vocab_size()), tokenizer_->eos_id().value_or(-1)};
        for (const ValidationPrompt& prompt : prompts_) {
            lengths.push_back(int32_t(prompt.ids.size()));
            ids.insert(ids.end(), prompt.ids.begin(), prompt.ids.end());
        }
    });
    for (auto* numbers : {&of_tokenizer, &lengths, &ids}) broadcast_numbers(world, *numbers);
    if (world.rank() != 0)
        for (auto from = ids.begin(); const int32_t length : lengths) {
            prompts_.push_back({"", {from, from + length}});
            from += length;
        }
    eos_ = of_tokenizer[1];
    drawn_.emplace(
        Sampling{.temperature = config.validation.sample_temperature, .seed = uint64_t(config.debug.seed)},
        of_tokenizer[0]);
}

std::optional<std::vector<SampleText>> ValidationPrompts::run(Engine& engine, int64_t step,
                                                              FunctionRef<bool()> goes_on) {
    std::vector<Text> texts;
    for (const ValidationPrompt& prompt : prompts_)
        texts.push_back({.ids = prompt.ids, .prompt = prompt.ids.size()});
    const auto at_a_time = size_t(sequences_ * engine.mesh().size(axis::dp));
    for (size_t first = 0; first < texts.size(); first += at_a_time) {
        const size_t count = std::min(at_a_time, texts.size() - first);
        const uint64_t number = uint64_t(step) * texts.size() + first;
        if (!write(engine, std::span(texts).subspan(first, count), number, goes_on)) return std::nullopt;
    }
    std::vector<SampleText> samples;
    if (!tokenizer_) return samples;
    if (!std::ranges::all_of(texts, &Text::is_finite))
        log::warn("validate step: {}: logits after a prompt are not finite, so its text ends", step);
    for (size_t i = 0; i < texts.size(); ++i) samples.push_back(sample_of(prompts_[i], texts[i]));
    return samples;
}

// Continues as many texts as fit into the rows of all data ranks, until all of them end. False: stopped.
bool ValidationPrompts::write(Engine& engine, std::span<Text> texts, uint64_t first_number,
                              FunctionRef<bool()> goes_on) {
    const Mesh& mesh = engine.mesh();
    const std::vector<size_t> rows = rows_here(mesh, texts.size());
    for (uint64_t index = 0; std::ranges::any_of(texts, &Text::is_open); ++index) {
        if (!goes_on()) return false;
        const std::vector<Tensor> logits = predict(engine, texts);
        drawn_->begin(texts.size());
        for (size_t i = 0; i < rows.size() && mesh.rank(axis::tp) == 0; ++i)
            if (logits[i] && texts[rows[i]].is_open)
                drawn_->draw(rows[i], logits[i], index, first_number + rows[i]);
        const std::vector<int32_t> tokens = drawn_->agreed(mesh.world());
        for (size_t i = 0; i < texts.size(); ++i)
            if (texts[i].is_open) take(texts[i], tokens[i]);
    }
    return true;
}

// The logits after the last token of each text of this data rank. A rank without one computes an empty row.
std::vector<Tensor> ValidationPrompts::predict(Engine& engine, std::span<const Text> texts) {
    const std::vector<size_t> rows = rows_here(engine.mesh(), texts.size());
    const size_t count = std::max<size_t>(1, rows.size());
    const size_t places = count * size_t(seq_len_);
    std::vector<int32_t> tokens(places), labels(places, ignored_label), document_start(places);
    std::vector<int64_t> last(count);
    for (size_t i = 0; i < rows.size(); ++i) {
        const std::vector<int32_t>& ids = texts[rows[i]].ids;
        std::ranges::copy(ids, tokens.begin() + int64_t(i) * seq_len_);
        last[i] = int64_t(ids.size()) - 1;
    }
    SampleRows batch = {.sequences = int64_t(count), .seq_len = seq_len_, .tokens = tokens, .labels = labels};
    if (document_mask_) batch.document_start = document_start;
    return engine.predict(batch, last);
}

void ValidationPrompts::take(Text& text, int32_t token) const {
    text.is_finite = token != DrawnTokens::not_finite;
    text.is_open = text.is_finite && token != eos_;
    if (!text.is_open) return;
    text.ids.push_back(token);
    text.is_open = int64_t(text.ids.size() - text.prompt) < length_ && int64_t(text.ids.size()) < seq_len_;
}

SampleText ValidationPrompts::sample_of(const ValidationPrompt& prompt, const Text& text) const {
    Tokenizer::Stream stream(*tokenizer_);
    SampleText sample = {.prompt = prompt.text, .text = {}};
    for (const int32_t id : std::span(text.ids).subspan(text.prompt)) sample.text += stream.push(id);
    sample.text += stream.finish();
    return sample;
}

std::string ValidationPrompts::cost(int64_t data_ranks, int64_t batches) const {
    const auto prompts = int64_t(prompts_.size());
    return fmt::format("{} token{} of {} prompt{} cost as much as {} of {} validation batch{}",
                       with_commas(length_), length_ == 1 ? "" : "s", with_commas(prompts),
                       prompts == 1 ? "" : "s",
                       with_commas(length_ * div_ceil(prompts, sequences_ * data_ranks)),
                       with_commas(batches), batches == 1 ? "" : "es");
}

}  // namespace coeus
