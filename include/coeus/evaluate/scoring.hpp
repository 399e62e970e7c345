// SPDX-License-Identifier: Apache-2.0
// Scoring: the requests of some tasks as rows of a fixed length, and their scores by an engine. Rank 0 knows
// the tasks; all ranks get the windows, and data ranks divide the rows.
#pragma once

#include "coeus/engine/engine.hpp"
#include "coeus/evaluate/windows.hpp"
#include "coeus/models/decoder_config.hpp"

#include <cstdint>
#include <map>
#include <vector>

namespace coeus {

struct ScoringOptions {
    int64_t context = 0;        ///< the most ids that the model sees
    int64_t stride = 0;         ///< of the windows of documents
    int64_t row_length = 0;     ///< places of a row; at least `context`
    bool one_in_a_row = false;  ///< see needs_row_for_each()
    int64_t sequences = 1;      ///< rows of a batch of a data rank
};

/// True if what a model computes for a text depends on its place in the row: attention in chunks of the row,
/// or a temperature by position. RoPE depends on distances alone.
bool needs_row_for_each(const DecoderConfig& model);

/// Places of a row of `context` ids that context-parallel ranks divide into pairs of equal parts, and
/// tensor-parallel ranks each of these. A scaling of RoPE that depends on the length of the row gets no other
/// length than the context: ConfigError if that cannot be divided.
int64_t row_length_for(const DecoderConfig& model, int64_t context, int64_t tensor_ranks,
                       int64_t context_ranks);

/// The score of a request.
struct Score {
    double log_probability = 0;  ///< sum over its ids
    bool greedy = true;          ///< each of its ids is the most likely one; equals count
    int64_t tokens = 0;          ///< ids that were scored
};

/// Losses of documents' tokens, by what the model saw before: [2^k, 2^(k+1)) ids.
struct PositionLosses {
    double sum = 0;
    int64_t tokens = 0;
};

class Scoring {
public:
    /// Makes the windows of rank 0's tasks known to all ranks of `world`. Collective.
    Scoring(const std::vector<Task>& tasks, const ScoringOptions& options, const Communicator& world);

    int64_t requests() const { return requests_; }
    int64_t rows() const { return int64_t(rows_.size()); }
    int64_t tokens() const;

    /// Scores all requests with an engine whose validation batches are rows of these options. All ranks call
    /// `goes_on` before each batch; if it returns false, on all ranks alike, so does this, and there are no
    /// scores. Collective.
    bool run(
        Engine& engine, FunctionRef<bool()> goes_on = [] { return true; });
    /// The scores of the last run, on every rank: of the requests of all lines of all tasks, in order.
    const std::vector<Score>& scores() const { return scores_; }
    /// By task and k; only tasks of documents have an entry.
    const std::map<int32_t, std::map<int, PositionLosses>>& positions() const { return positions_; }

private:
    static constexpr int32_t not_document = -1;
    struct Of {
        int32_t request, task;  // the task: of documents only
    };
    void broadcast(const Communicator& world);
    void fill(const PackedRow& row, size_t number);
    void add(size_t window, const TokenScores& scores, size_t first);

    ScoringOptions options_;
    int64_t requests_ = 0;
    std::vector<Window> windows_;
    std::vector<Of> of_;  // by window
    std::vector<PackedRow> rows_;
    std::vector<Score> scores_;
    std::map<int32_t, std::map<int, PositionLosses>> positions_;
    std::vector<int32_t> tokens_, labels_, document_start_;  // of a batch
    std::vector<double> sums_;                               // by window: log probability, ids not greedy
    std::vector<double> by_position_;                        // by task and k: sum, tokens
};

}  // namespace coeus
