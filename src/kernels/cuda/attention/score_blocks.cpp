// SPDX-License-Identifier: Apache-2.0
#include "score_blocks.hpp"

#include "coeus/base/error.hpp"

#include <cmath>

namespace coeus::cuda {

namespace {

/// Rows of a sequence whose tokens follow each other, and the index of the first of these in the whole
/// sequence.
struct Run {
    int64_t first, count, index;
};
struct Runs {
    std::array<Run, 2> runs = {};
    size_t count = 0;
    const Run* begin() const { return runs.data(); }
    const Run* end() const { return runs.data() + count; }
};

Runs runs_of(const SequencePart& part) {
    const int64_t half = part.half();
    if (part.gap == 0 || half == 0) return {{{{0, part.count, part.index(0)}}}, 1};
    return {{{{0, half, part.first}, {half, part.count - half, part.index(half)}}}, 2};
}

// Makes `block` larger if `next` follows it.
bool extend(ScoreBlock& block, const ScoreBlock& next) {
    if (block.causal || next.causal) return false;
    const bool same_queries = block.first_query == next.first_query && block.queries == next.queries,
               same_keys = block.first_key == next.first_key && block.keys == next.keys;
    if (same_queries && block.first_key + block.keys == next.first_key) {
        block.keys += next.keys;
        return true;
    }
    if (same_keys && block.first_query + block.queries == next.first_query) {
        block.queries += next.queries;
        return true;
    }
    return false;
}

}  // namespace

void ScoreBlocks::add(const ScoreBlock& block) {
    if (count_ > 0 && extend(blocks_[count_ - 1], block)) return;
    require(count_ < most, "attention: more blocks of scores than two runs of queries can have");
    blocks_[count_++] = block;
}

std::optional<ScoreBlocks> score_blocks(const AttentionShape& s) {
    ScoreBlocks blocks;
    if (!s.causal) {
        blocks.add({0, s.sequence, 0, s.keys().count});
        return blocks;
    }
    if (s.queries() == s.keys()) {
        blocks.add({0, s.sequence, 0, s.sequence, true});
        return blocks;
    }
    for (const Run& q : runs_of(s.queries()))
        for (const Run& k : runs_of(s.keys())) {
            const int64_t before = q.index - k.index;  // keys before the first query
            if (before <= -q.count) continue;
            if (before >= k.count) {
                blocks.add({q.first, q.count, k.first, k.count});
                continue;
            }
            if (before < 0 || before + q.count > k.count) return std::nullopt;
            if (before > 0) blocks.add({q.first, q.count, k.first, before});
            blocks.add({q.first, q.count, k.first + before, q.count, true});
        }
    return blocks;
}

ScoreBlocks blocks_of(const AttentionShape& s) {
    const std::optional<ScoreBlocks> blocks = score_blocks(s);
    require(blocks.has_value(), "attention: the scores cannot be divided into blocks");
    return *blocks;
}

bool is_whole(const ScoreBlocks& blocks, const AttentionShape& s) {
    const int64_t keys = s.keys().count;
    return keys == s.sequence && blocks.size() == 1 && *blocks.begin() == ScoreBlock{0, keys, 0, keys, true};
}

int64_t mean_tokens(const ScoreBlocks& blocks) {
    if (blocks.size() == 0) return 0;
    double scores = 0;
    for (const ScoreBlock& block : blocks)
        scores += double(block.queries) * double(block.keys) / (block.causal ? 2 : 1);
    return std::llround(std::sqrt(2 * scores / double(blocks.size())));
}

}  // namespace coeus::cuda
