// SPDX-License-Identifier: Apache-2.0
// The data of a run: from training.dataset_path to samples.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/data/batch_loader.hpp"

#include <filesystem>
#include <memory>
#include <optional>

namespace coeus {

/// What a run with training.shuffle = false says at its start.
constexpr const char* unshuffled_notice =
    "Notice: training.shuffle = false: the data is read in its order; text that is sorted by source or "
    "subject "
    "trains worse";

/// What a run would find in the data on this host, without making tokens of text: for dry runs.
struct DataCheck {
    std::vector<std::string> errors;   ///< why a run would be refused
    std::vector<std::string> absent;   ///< what a run needs and is not on this host
    std::vector<std::string> notices;  ///< as TrainingData::notices()
};
/// Looks at the token files and the tokenizer; paths that do not exist here are passed over. `weights`: the
/// weights that the run begins from, "" if they are random.
DataCheck check_data(const Config& config, int64_t vocab, const std::string& weights);

class TrainingData {
public:
    using Files = std::vector<std::unique_ptr<TokenFile>>;

    /// Opens token files as they are; text is tokenized once, by rank 0, into `cache_folder`. With weights
    /// each path is a source of a blend; without them all text is joined to one, and each token file is one,
    /// weighted by its size. ConfigError: no
    /// data, data that is missing, damaged or too short, ids beyond the vocabulary, a tokenizer larger than
    /// it. Collective.
    TrainingData(const Config& config, int64_t vocab, const std::filesystem::path& cache_folder,
                 const Communicator& world, int threads);

    const SampleStream& training() const { return *training_; }
    /// The windows of the training data are read in their order, or permuted. Before the first batch.
    void set_shuffled(bool shuffled);
    /// Null where validation is off.
    const SampleStream* validation() const { return validation_ ? &*validation_ : nullptr; }
    /// How often so many samples read each source of the training data: "a.h5 2.50 times, b.h5 0.40 times";
    /// "" where none is read more than once.
    std::string passes(int64_t samples) const;
    /// One line for the log.
    std::string summary() const;
    /// A line for each thing that makes the run worse than it could be: another tokenizer made the data, or
    /// the vocabulary is much larger than the tokenizer's. Only rank 0 has lines, since it alone looks.
    std::vector<std::string> notices() const;
    /// ConfigError on rank 0 if it found data that another tokenizer than the one in `tokenizer` made. A run
    /// that begins from the weights of `path` would read its ids as other tokens.
    void require_tokenizer_of(const std::string& path, const std::string& tokenizer) const;

private:
    Files files_, validation_files_;
    std::vector<std::string> of_other_tokenizers_;  ///< paths
    std::string tokenizer_notice_;                  ///< "" if there is none
    std::vector<double> weights_;
    Sampler::Options order_;  ///< of the training data
    std::optional<SampleStream> training_, validation_;
};

}  // namespace coeus
