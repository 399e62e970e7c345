// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/evaluator.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/ignored_label.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace coeus {

namespace {

// The losses and labels of each source of the data, on this rank.
class SumsOfSources {
public:
    explicit SumsOfSources(size_t sources) : sums_(2 * sources, 0) {}

    void add(const SampleRows& batch, const TokenScores& scores, std::span<const size_t> source_of_row) {
        for (size_t i = 0; i < size_t(batch.count()); ++i) {
            if (batch.labels[i] == ignored_label) continue;
            const size_t source = source_of_row[i / size_t(batch.seq_len)];
            sums_[2 * source] += scores.losses[i];
            sums_[2 * source + 1] += 1;
        }
    }

    // The means over all ranks. Collective.
    std::vector<SourceLoss> losses(const std::vector<std::string>& names, const Communicator& data_ranks) {
        std::vector<SourceLoss> all;
        if (names.empty()) return all;
        data_ranks.all_reduce(Tensor(sums_.data(), Dtype::f64, {int64_t(sums_.size())}));
        for (size_t k = 0; k < names.size(); ++k)
            all.push_back({names[k], sums_[2 * k] / sums_[2 * k + 1], int64_t(sums_[2 * k + 1])});
        return all;
    }

private:
    std::vector<double> sums_;  // of each source: the losses, and the number of labels
};

}  // namespace

Evaluator::Evaluator(const Config& config, SampleStream stream, std::vector<std::string> sources)
    : stream_(std::move(stream)),
      sources_(std::move(sources)),
      sequences_(config.validation.local_batch_size),
      steps_(config.validation.steps),
      all_samples_(stream_.first_epoch()),
      document_mask_(config.training.document_mask) {
    const size_t tokens = size_t(sequences_ * stream_.seq_len());
    for (auto* buffer : {&tokens_, &labels_, &document_start_}) buffer->resize(tokens);
}

int64_t Evaluator::batches(int64_t data_ranks) const {
    const int64_t all = div_ceil(all_samples_, sequences_ * data_ranks);
    return steps_ < 0 ? all : std::min(all, steps_);
}

std::optional<ValidationMetrics> Evaluator::run(Engine& engine, FunctionRef<bool()> goes_on) {
    const Timer timer;
    const Communicator& data_ranks = engine.mesh()[axis::dp];
    const int64_t ranks = data_ranks.size(), seq_len = stream_.seq_len();
    const int64_t samples = std::min(all_samples_, batches(ranks) * sequences_ * ranks);

    double loss = 0;
    int64_t valid = 0;
    SumsOfSources of_sources(sources_.size());
    TokenScores scores;
    std::vector<size_t> source_of_row(sources_.empty() ? 0 : size_t(sequences_));
    // the same number of calls on every rank, and of rows in each, since the layers communicate and the room
    // for experts' rows is a multiple of a rank's own; a rank that has fewer samples left adds rows without
    // labels
    const int64_t calls = div_ceil(div_ceil(samples, ranks), sequences_);
    int64_t sample = data_ranks.rank();
    for (int64_t call = 0; call < calls; ++call) {
        if (!goes_on()) return std::nullopt;
        const int64_t left = samples - call * sequences_ * ranks,
                      count = std::min(sequences_, div_ceil(left, ranks));
        int64_t filled = 0;
        const auto row = [&](std::vector<int32_t>& buffer) {
            return std::span(buffer).subspan(size_t(filled * seq_len), size_t(seq_len));
        };
        const auto read = [&](int64_t which) {
            const Recorded recorded(OperationKind::data, operation_name::read_samples,
                                    std::source_location::current());
            return stream_.sample(which, row(tokens_), row(labels_), row(document_start_));
        };
        for (; filled < count && sample < samples; ++filled, sample += ranks) {
            valid += read(sample);
            if (!sources_.empty()) source_of_row[size_t(filled)] = stream_.last_source();
        }
        for (; filled < count; ++filled) {
            read(0);
            std::ranges::fill(row(labels_), ignored_label);
        }
        SampleRows samples_read = {
            .sequences = sequences_, .seq_len = seq_len, .tokens = tokens_, .labels = labels_};
        if (document_mask_) samples_read.document_start = document_start_;
        const SampleRows rows = samples_read.slice(0, count);
        if (sources_.empty()) {
            loss += engine.evaluate(rows);
        } else {
            loss += engine.evaluate(rows, scores);
            of_sources.add(rows, scores, source_of_row);
        }
    }

    ValidationMetrics m;
    m.tokens = data_ranks.all_reduce(valid);
    if (m.tokens == 0)
        throw ConfigError(
            "validation: no token of its {} samples is a label, so there is no loss; check /loss_mask of the "
            "validation data",
            samples);
    m.loss = engine.mesh()[loss_axes].all_reduce(loss) / double(m.tokens);
    m.sources = of_sources.losses(sources_, data_ranks);
    m.seconds = timer.seconds();
    m.tps = double(m.tokens) / engine.mesh().world().size() / m.seconds;
    return m;
}

}  // namespace coeus
