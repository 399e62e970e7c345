// SPDX-License-Identifier: Apache-2.0
// The built-in schedules (one file each), and code that several of them share.
#pragma once

#include "coeus/pipeline/schedule.hpp"

namespace coeus::pipeline {

extern const Schedule gpipe, one_f_one_b, looped_bfs, interleaved, interleaved_zero_bubble, zb_v, dualpipe_v;

/// Short functions that make actions.
inline Action F(int stage, int microbatch) {
    return {ActionKind::forward, stage, microbatch};
}
inline Action B(int stage, int microbatch) {
    return {ActionKind::backward, stage, microbatch};
}
inline Action I(int stage, int microbatch) {
    return {ActionKind::backward_input, stage, microbatch};
}
inline Action W(int stage, int microbatch) {
    return {ActionKind::backward_weight, stage, microbatch};
}

/// The rule of schedules that need exactly `stages` stages on each rank.
std::optional<Refusal> needs_virtual_stages(const char* name, const PipelineShape& shape, int stages);

/// Interleaved schedules process the micro-batches in rounds of about P: a rank runs a round through its
/// first stage, then through its second, and so on; then the next round. Backwards go through the stages in
/// reverse. Rounds returns operation k (0 to M V - 1) of a rank; forwards and backwards are counted
/// separately.
class Rounds {
public:
    explicit Rounds(const PipelineShape& shape);
    /// The number of micro-batches must make up whole rounds.
    static std::optional<Refusal> broken_rule(const char* name, const PipelineShape& shape);

    int operations() const { return shape_.microbatches * shape_.virtual_stages; }
    int round_size() const { return size_; }
    Action forward(int rank, int k) const;
    /// `kind` is B, I or W.
    Action backward(ActionKind kind, int rank, int k) const;

private:
    PipelineShape shape_;
    int size_;
};

}  // namespace coeus::pipeline
