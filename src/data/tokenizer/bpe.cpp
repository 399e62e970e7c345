// SPDX-License-Identifier: Apache-2.0
#include "bpe.hpp"

#include <algorithm>
#include <bit>

namespace coeus {

namespace {

// Long pieces hardly ever come again; and a cache past the size of the processor's own caches is rebuilt.
constexpr size_t longest_cached = 64, most_cached_words = 1 << 17;

size_t slot_of(uint64_t pair) {
    return size_t((pair * 0x9E3779B97F4A7C15u) >> 20);
}

}  // namespace

Bpe::Bpe(const std::vector<std::optional<std::string>>& bytes_of_id, const std::vector<Merge>& merges,
         bool whole_pieces)
    : merges_(std::bit_ceil(2 * merges.size() + 2), Ranked{free_slot, 0, 0}), whole_pieces_(whole_pieces) {
    id_of_byte_.fill(-1);
    for (size_t id = 0; id < bytes_of_id.size(); ++id) {
        if (!bytes_of_id[id]) continue;
        if (bytes_of_id[id]->size() == 1) id_of_byte_[uint8_t((*bytes_of_id[id])[0])] = int32_t(id);
        if (whole_pieces) id_of_piece_.emplace(*bytes_of_id[id], int32_t(id));
    }
    for (const Merge& merge : merges) {
        const uint64_t pair = (uint64_t(merge.left) << 32) | uint32_t(merge.right);
        size_t at = slot_of(pair) & (merges_.size() - 1);
        while (merges_[at].pair != free_slot && merges_[at].pair != pair)
            at = (at + 1) & (merges_.size() - 1);
        if (merges_[at].pair == free_slot) merges_[at] = {pair, merge.rank, merge.result};
    }
}

const Bpe::Ranked* Bpe::find(int32_t left, int32_t right) const {
    const uint64_t pair = (uint64_t(left) << 32) | uint32_t(right);
    for (size_t at = slot_of(pair) & (merges_.size() - 1);; at = (at + 1) & (merges_.size() - 1)) {
        if (merges_[at].pair == pair) return &merges_[at];
        if (merges_[at].pair == free_slot) return nullptr;
    }
}

void Bpe::Encoder::encode(std::string_view piece, std::vector<int32_t>& ids) {
    if (piece.size() > longest_cached) return merge(piece, ids);
    if (cache_.size() >= most_cached_words) {
        cache_.clear();
        ids_.clear();
    }
    Known& known = cache_[piece];
    if (known.count == 0) {
        known.begin = uint32_t(ids_.size());
        merge(piece, ids_);
        known.count = uint32_t(ids_.size()) - known.begin;
    }
    ids.insert(ids.end(), ids_.begin() + known.begin, ids_.begin() + known.begin + known.count);
}

// Queues the merge of a symbol with its right neighbour, if there is one.
void Bpe::Encoder::offer(int32_t left) {
    const Symbol& symbol = symbols_[size_t(left)];
    if (symbol.next < 0) return;
    const int32_t right_id = symbols_[size_t(symbol.next)].id;
    const Ranked* ranked = bpe_->find(symbol.id, right_id);
    if (!ranked) return;
    candidates_.push_back({ranked->rank, left, symbol.id, right_id, ranked->result});
    std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
}

void Bpe::Encoder::merge(std::string_view piece, std::vector<int32_t>& ids) {
    if (bpe_->whole_pieces_) {
        const auto whole = bpe_->id_of_piece_.find(std::string(piece));
        if (whole != bpe_->id_of_piece_.end()) return ids.push_back(whole->second);
    }
    symbols_.clear();
    for (char byte : piece) {
        const int32_t id = bpe_->id_of_byte_[uint8_t(byte)], here = int32_t(symbols_.size());
        if (id < 0) continue;
        if (here > 0) symbols_.back().next = here;
        symbols_.push_back({id, here - 1, -1});
    }
    candidates_.clear();
    for (size_t i = 0; i < symbols_.size(); ++i) offer(int32_t(i));
    while (!candidates_.empty()) {
        std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
        const Candidate best = candidates_.back();
        candidates_.pop_back();
        Symbol& left = symbols_[size_t(best.left)];
        // an earlier merge may have taken either side
        if (left.id != best.left_id || left.next < 0) continue;
        Symbol& right = symbols_[size_t(left.next)];
        if (right.id != best.right_id) continue;
        left.id = best.result;
        left.next = right.next;
        right.id = -1;
        if (left.next >= 0) symbols_[size_t(left.next)].previous = best.left;
        if (left.previous >= 0) offer(left.previous);
        offer(best.left);
    }
    for (const Symbol& symbol : symbols_)
        if (symbol.id >= 0) ids.push_back(symbol.id);
}

}  // namespace coeus
