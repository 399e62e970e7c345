// SPDX-License-Identifier: Apache-2.0
// ValidationPrompts: the prompts of validation.prompts, which each validation continues. Each token is
// computed by a whole forward pass of the validation's shape, without a cache, so that every mesh can do it.
// A prompt is a row of the batch; data ranks divide the prompts.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/generate/drawn_tokens.hpp"
#include "coeus/metrics/metrics.hpp"
#include "coeus/models/decoder_config.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coeus {

struct ValidationPrompt {
    std::string text;
    std::vector<int32_t> ids;
};

/// The prompts of validation.prompts for a model. ConfigError: see validation_tokenizer(), read_prompts() and
/// prompt_ids(); a prompt leaves no place for a text in a sequence of validation.
std::vector<ValidationPrompt> read_validation_prompts(const Config& config, const DecoderConfig& model);

class ValidationPrompts {
public:
    /// Rank 0 reads the file. Collective.
    ValidationPrompts(const Config& config, const DecoderConfig& model, const Communicator& world);

    /// Continues all prompts, with tokens drawn by the deck's seed, `step` and the number of the prompt. A
    /// text ends at EOS, at validation.sample_length, or with the sequence. The result is on rank 0. All
    /// ranks call `goes_on` before each pass; if it returns false, on all ranks alike, nothing is returned.
    /// Collective.
    std::optional<std::vector<SampleText>> run(Engine& engine, int64_t step, FunctionRef<bool()> goes_on);

    /// What the texts of a validation cost, for the log; it has `batches` batches.
    std::string cost(int64_t data_ranks, int64_t batches) const;

private:
    struct Text;
    bool write(Engine& engine, std::span<Text> texts, uint64_t first_number, FunctionRef<bool()> goes_on);
    std::vector<Tensor> predict(Engine& engine, std::span<const Text> texts);
    void take(Text& text, int32_t token) const;
    SampleText sample_of(const ValidationPrompt& prompt, const Text& text) const;

    int64_t sequences_, seq_len_, length_;
    bool document_mask_;
    std::optional<Tokenizer> tokenizer_;     // on rank 0
    std::vector<ValidationPrompt> prompts_;  // the texts are on rank 0
    int32_t eos_ = -1;                       // -1: the tokenizer has none
    std::optional<DrawnTokens> drawn_;
};

}  // namespace coeus
