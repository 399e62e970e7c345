// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/evaluator.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/ignored_label.hpp"

#include <algorithm>

namespace coeus {

Evaluator::Evaluator(const Config& config, SampleStream stream)
    : stream_(std::move(stream)),
      sequences_(config.validation.local_batch_size),
      steps_(config.validation.steps),
      all_samples_(stream_.first_epoch()),
      document_mask_(config.training.document_mask) {
    const size_t tokens = size_t(sequences_ * stream_.seq_len());
    for (auto* buffer : {&tokens_, &labels_, &document_start_}) buffer->resize(tokens);
}

std::optional<ValidationMetrics> Evaluator::run(Engine& engine, FunctionRef<bool()> goes_on) {
    const Timer timer;
    const Communicator& data_ranks = engine.mesh()[axis::dp];
    const int64_t ranks = data_ranks.size(), seq_len = stream_.seq_len();
    const int64_t batch = sequences_ * ranks, batches = div_ceil(all_samples_, batch);
    const int64_t samples = steps_ < 0 || steps_ >= batches ? all_samples_ : steps_ * batch;

    double loss = 0;
    int64_t valid = 0;
    // the same number of calls on every rank, since the layers communicate; a rank with no sample left
    // evaluates one without labels
    const int64_t calls = div_ceil(div_ceil(samples, ranks), sequences_);
    int64_t sample = data_ranks.rank();
    for (int64_t call = 0; call < calls; ++call) {
        if (!goes_on()) return std::nullopt;
        int64_t filled = 0;
        const auto row = [&](std::vector<int32_t>& buffer) {
            return std::span(buffer).subspan(size_t(filled * seq_len), size_t(seq_len));
        };
        const auto read = [&](int64_t which) {
            const Recorded recorded(OperationKind::data, operation_name::read_samples,
                                    std::source_location::current());
            return stream_.sample(which, row(tokens_), row(labels_), row(document_start_));
        };
        for (; filled < sequences_ && sample < samples; ++filled, sample += ranks) valid += read(sample);
        if (filled == 0) {
            read(0);
            std::ranges::fill(row(labels_), ignored_label);
            filled = 1;
        }
        SampleRows samples_read = {
            .sequences = sequences_, .seq_len = seq_len, .tokens = tokens_, .labels = labels_};
        if (document_mask_) samples_read.document_start = document_start_;
        loss += engine.evaluate(samples_read.slice(0, filled));
    }

    ValidationMetrics m;
    m.tokens = data_ranks.all_reduce(valid);
    if (m.tokens == 0)
        throw ConfigError(
            "validation: no token of its {} samples is a label, so there is no loss; check /loss_mask of the "
            "validation data",
            samples);
    m.loss = engine.mesh()[loss_axes].all_reduce(loss) / double(m.tokens);
    m.seconds = timer.seconds();
    m.tps = double(m.tokens) / engine.mesh().world().size() / m.seconds;
    return m;
}

}  // namespace coeus
