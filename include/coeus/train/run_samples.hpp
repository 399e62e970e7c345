// SPDX-License-Identifier: Apache-2.0
// RunSamples: which samples the steps of a run read, for a look at them without the run. A sample is a pure
// function of its number, so it needs only the deck, the data, and what the run's folder says of its past.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/train/training_data.hpp"

#include <cstdint>
#include <vector>

namespace coeus {

class RunSamples {
public:
    /// `ranks`: the ranks of the run, of which the global batch size may depend; 0: those of its last start,
    /// or as few as its degrees need. ConfigError: text that was not tokenized before, or a mesh that does
    /// not fit.
    RunSamples(const Config& config, int ranks);

    TrainingData& data() { return data_; }
    SampleStream& stream() { return stream_; }
    /// Numbers of samples, as the guards print them: [first, first + count).
    struct Step {
        int64_t first, count;
    };
    /// What a step (from 1) read, or will read if the run continues with this deck. A checkpoint before it,
    /// or a spike whose samples were skipped, says where it begins; the steps between two of these are
    /// equally large.
    Step step(int64_t number) const;
    /// The step that reads a sample.
    int64_t step_of(int64_t sample) const;
    /// Sequences of a step with this deck, and over how many data-parallel ranks they are divided.
    int64_t global_batch() const { return global_batch_; }
    int64_t data_ranks() const { return data_ranks_; }

private:
    /// After `step` steps, the next sample is `sample`. Before samples were skipped, it was `reached`.
    struct Place {
        int64_t step, sample, reached;
    };
    /// Sequences of the steps after places_[i].
    int64_t batch_after(size_t i) const;

    std::vector<Place> places_;  ///< ascending
    int64_t global_batch_ = 1, data_ranks_ = 1;
    TrainingData data_;
    SampleStream stream_;
};

}  // namespace coeus
