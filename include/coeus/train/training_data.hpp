// SPDX-License-Identifier: Apache-2.0
// TrainingData: the data of a run, from training.dataset_path to samples.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/data/batch_loader.hpp"

#include <filesystem>
#include <memory>
#include <optional>

namespace coeus {

/// A notice at the start of a run with training.shuffle = false.
constexpr const char* unshuffled_notice =
    "training.shuffle = false: the data is read in file order; text that is sorted by source or subject "
    "trains worse";

/// Result of checking the data on this host for a dry run, which does not tokenize text.
struct DataCheck {
    std::vector<std::string> errors;   ///< reasons to refuse a run
    std::vector<std::string> failed;   ///< what the system could not do or this user may not do on this host
    std::vector<std::string> absent;   ///< files that a run needs and that are not on this host
    std::vector<std::string> notices;  ///< as TrainingData::notices()
};
/// Checks the token files and the tokenizer. Skips paths that do not exist on this host. `weights`: path of
/// the weights from which the run starts; "" if they are random.
DataCheck check_data(const Config& config, int64_t vocab, const std::string& weights);

class TrainingData {
public:
    using Files = std::vector<std::unique_ptr<TokenFile>>;

    /// Opens token files as they are; rank 0 tokenizes text once, into `cache_folder`. With
    /// training.dataset_weights each path is one source of a blend. Without them all text is one source, each
    /// token file is another one, and sources are weighted by their size. ConfigError: no data, data that is
    /// missing, damaged or too short, token ids beyond the vocabulary, a tokenizer with more tokens than the
    /// vocabulary. Collective.
    TrainingData(const Config& config, int64_t vocab, const std::filesystem::path& cache_folder,
                 const Communicator& world, int threads);

    /// The training data for a look at it: this process alone opens it, tokenizes nothing and does not
    /// compare all of it with a vocabulary. ConfigError if there is text that was not tokenized before. Not
    /// collective.
    TrainingData(const Config& config, const std::filesystem::path& cache_folder);

    const SampleStream& training() const { return *training_; }
    /// The files of the training data, in the order of the stream's sources.
    const Files& files() const { return files_; }
    /// Reads the windows of the training data permuted (true) or in file order. Call it before the first
    /// batch.
    void set_shuffled(bool shuffled);
    /// Null if validation is off.
    const SampleStream* validation() const { return validation_ ? &*validation_ : nullptr; }
    /// A name for each source of the validation data: its files' names without extension, or their whole
    /// paths if another source has this name. Empty without validation.per_dataset.
    const std::vector<std::string>& validation_names() const { return validation_names_; }
    /// Epochs of each source of the training data in `samples` samples: "2.50 epochs of a.h5, 0.40 epochs of
    /// b.h5"; "" if no source is read more than once.
    std::string passes(int64_t samples) const;
    /// One line for the log.
    std::string summary() const;
    /// The files of the training data, with their tokens and documents.
    std::string sources() const;
    /// Bytes of text per token, as sources are weighted. None if a file does not say of how many bytes it was
    /// made, if there is no validation, and on all ranks but rank 0.
    std::optional<double> bytes_per_token() const;
    std::optional<double> validation_bytes_per_token() const;
    /// A line for each fact that makes the run worse than it could be: another tokenizer made the data, or
    /// the vocabulary is much larger than the tokenizer's. Empty on all ranks but rank 0: only rank 0 checks.
    std::vector<std::string> notices() const;
    /// ConfigError on rank 0 if another tokenizer than the one in `tokenizer` made the data: a run that
    /// starts from the weights of `path` would take its ids for other tokens.
    void require_tokenizer_of(const std::string& path, const std::string& tokenizer) const;

private:
    Files files_, validation_files_;
    std::vector<std::string> validation_names_;
    std::vector<std::string> of_other_tokenizers_;  ///< paths of files that another tokenizer made
    std::vector<std::string> tokenizer_notices_;    ///< about the tokenizer
    std::vector<double> weights_;
    Sampler::Options order_;  ///< of the training data
    std::optional<SampleStream> training_, validation_;
};

}  // namespace coeus
