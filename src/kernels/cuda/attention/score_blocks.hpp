// SPDX-License-Identifier: Apache-2.0
// The scores of a call of attention as blocks under one mask each, since libraries have kernels for such
// blocks: the causal square of a sequence and itself, and rectangles of which every query sees every key.
#pragma once

#include "coeus/kernels/attention_shape.hpp"

#include <array>
#include <optional>

namespace coeus::cuda {

/// Rows of each sequence's queries and keys. If `causal` is set, there are as many keys as queries, and the
/// i-th query sees the first i + 1 keys; otherwise it sees all.
struct ScoreBlock {
    int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
    bool causal = false;
    bool operator==(const ScoreBlock&) const = default;
};

/// At most four blocks, in the order in which their results are added: for each of two runs of queries, a
/// rectangle with the keys before it, and the square with its own.
class ScoreBlocks {
public:
    static constexpr size_t most = 4;

    /// Adds a block, or makes the last one larger by it: if both are without a mask, for the same queries or
    /// the same keys, and follow each other.
    void add(const ScoreBlock& block);
    size_t size() const { return count_; }
    const ScoreBlock* begin() const { return blocks_.data(); }
    const ScoreBlock* end() const { return blocks_.data() + count_; }
    bool operator==(const ScoreBlocks&) const = default;

private:
    std::array<ScoreBlock, most> blocks_ = {};
    size_t count_ = 0;
};

/// The blocks of what the causal mask leaves, or one for all scores of full attention; windows, chunks and
/// documents are ignored. None if no query sees a key. Nothing if the tokens cannot be divided so: a run of
/// queries must see all of a run of keys, nothing of it, or have its own tokens among them.
///
/// With runs of h tokens, of which a rank has an early and a late one (Balancing::head_tail): a rank's own
/// keys are a causal square of 2 h, those of an earlier rank 2 h queries and the h early keys, those of a
/// later rank the h late queries and 2 h keys. For the keys of all ranks in the order of the sequence, each
/// of the two runs of queries has a rectangle with the keys before it, and a causal square.
std::optional<ScoreBlocks> score_blocks(const AttentionShape& s);

/// The same; LogicError if there is nothing.
ScoreBlocks blocks_of(const AttentionShape& s);

/// True if there is one block: each query with each key of its sequence, under the causal mask.
bool is_whole(const ScoreBlocks& blocks, const AttentionShape& s);

/// Tokens of a causal square with as many scores as the blocks have on average.
int64_t mean_tokens(const ScoreBlocks& blocks);

}  // namespace coeus::cuda
