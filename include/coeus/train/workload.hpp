// SPDX-License-Identifier: Apache-2.0
// Workload: the samples that a run trains on and is validated by, of the kind that its model reads.
// setup/pipeline_options.cpp cuts a local batch into micro-batches.
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/data/step_reader.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/metrics/metrics.hpp"
#include "coeus/train/training_data.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

class Workload {
public:
    Workload() = default;
    virtual ~Workload() = default;
    Workload(const Workload&) = delete;
    Workload& operator=(const Workload&) = delete;

    /// Reads the training samples permuted (true) or in file order. Call it before reader().
    virtual void set_shuffled(bool shuffled) = 0;
    /// A reader of the training samples, which the workload must outlive.
    virtual std::unique_ptr<StepReader> reader() const = 0;
    virtual int64_t tokens_per_sample() const = 0;
    /// Samples of all training data.
    virtual int64_t samples_per_epoch() const = 0;

    /// The error for a step whose samples, `first` to `last`, have nothing that counts in the loss
    /// (ReadSamples::counted).
    virtual ConfigError nothing_counts(int64_t step, int64_t first, int64_t last) const = 0;

    virtual bool validates() const = 0;
    /// As Evaluator::run(), after `step` steps. Only if validates().
    virtual std::optional<ValidationMetrics> validate(Engine& engine, int64_t step,
                                                      FunctionRef<bool()> goes_on) = 0;

    /// One line for the log.
    virtual std::string summary() const = 0;
    /// Epochs of each source of the training data in `samples` samples; "" if no source is read more than
    /// once.
    virtual std::string passes(int64_t samples) const = 0;
    /// The files of the training data.
    virtual std::string sources() const = 0;
    /// A line for each fact that makes the run worse than it could be. Only rank 0 checks.
    virtual std::vector<std::string> notices() const = 0;
    /// Bytes of text per token; none if they are not known, and if the samples are not text.
    virtual std::optional<double> bytes_per_token() const { return std::nullopt; }
    virtual std::optional<double> validation_bytes_per_token() const { return std::nullopt; }
    /// ConfigError on rank 0 if a run that starts from the weights of `path` would take the samples for
    /// something else than what these were trained on.
    virtual void require_encoding_of(const std::string& path) const = 0;
};

/// What a start would find in the files of the samples; see check_data().
DataCheck check_samples(const Config& config, const ModelConfig& model, const std::string& weights);

/// The workload of the deck for this kind of model. Text: as TrainingData. `config` must outlive it.
/// Collective.
std::unique_ptr<Workload> make_workload(const Config& config, const ModelConfig& model,
                                        const std::filesystem::path& cache_folder, const Communicator& world,
                                        int threads);

}  // namespace coeus
