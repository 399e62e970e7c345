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

private:
    Files files_, validation_files_;
    std::vector<double> weights_;
    Sampler::Options order_;  ///< of the training data
    std::optional<SampleStream> training_, validation_;
};

}  // namespace coeus
