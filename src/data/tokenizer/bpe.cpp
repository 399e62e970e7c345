// SPDX-License-Identifier: Apache-2.0
#include "bpe.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

namespace coeus {

namespace {

// The cache is cleared when it becomes larger than the processor's caches.
constexpr size_t most_cached_words = 1 << 17;
// Up to this number of parts, a search of all pairs for the next merge is faster than a heap.
constexpr size_t most_few = 48;
constexpr size_t longest_word = 16 << 20;  // merging takes 25 times as much memory
constexpr int32_t no_merge = std::numeric_limits<int32_t>::max();

// The upper bits of the product depend on all bits of the pair.
size_t slot_of(uint64_t pair, int shift) {
    return size_t((pair * 0x9E3779B97F4A7C15u) >> shift);
}

// The length of the character that begins with a byte.
size_t character_bytes(char first) {
    const auto lead = uint8_t(first);
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

}  // namespace

Bpe::Bpe(const std::vector<std::optional<std::string>>& text_of_id, const std::vector<Merge>& merges,
         Options options)
    : options_(std::move(options)),
      merges_(std::bit_ceil(2 * merges.size() + 2), Ranked{free_slot, 0, 0}),
      shift_(64 - std::countr_zero(merges_.size())) {
    id_of_byte_.fill(-1);
    for (size_t id = 0; id < text_of_id.size(); ++id) {
        if (!text_of_id[id] || text_of_id[id]->empty()) continue;
        const std::string& text = *text_of_id[id];
        if (text.size() == 1) id_of_byte_[uint8_t(text[0])] = int32_t(id);
        if (options_.characters && text.size() > 1 && text.size() == character_bytes(text[0]))
            id_of_character_.at(text, 0, text.size()) = int32_t(id);
        if (options_.whole_pieces) id_of_piece_.at(text, 0, text.size()) = int32_t(id);
    }
    for (const Merge& merge : merges) {
        const uint64_t pair = (uint64_t(merge.left) << 32) | uint32_t(merge.right);
        size_t at = slot_of(pair, shift_);
        while (merges_[at].pair != free_slot && merges_[at].pair != pair)
            at = (at + 1) & (merges_.size() - 1);
        merges_[at] = {pair, merge.rank, merge.result};
    }
}

const Bpe::Ranked* Bpe::find(int32_t left, int32_t right) const {
    const uint64_t pair = (uint64_t(left) << 32) | uint32_t(right);
    for (size_t at = slot_of(pair, shift_);; at = (at + 1) & (merges_.size() - 1)) {
        if (merges_[at].pair == pair) return &merges_[at];
        if (merges_[at].pair == free_slot) return nullptr;
    }
}

int32_t Bpe::id_of_symbol(std::string_view symbol) const {
    if (symbol.size() == 1) return id_of_byte_[uint8_t(symbol[0])];
    const int32_t* const id = id_of_character_.find(symbol);
    return id ? *id : -1;
}

bool Bpe::drops_nothing() const {
    const auto known = [](int32_t id) { return id >= 0; };
    const auto all_known = [&](const auto& ids) { return std::all_of(ids.begin(), ids.end(), known); };
    if (options_.unknown) return true;
    if (!options_.byte_tokens.empty()) return all_known(options_.byte_tokens);
    return !options_.characters && all_known(id_of_byte_);
}

void Bpe::Encoder::encode_new(std::string_view text, size_t begin, size_t end, std::vector<int32_t>& ids) {
    if (cache_.size() > most_cached_words) {
        cache_.clear();
        ids_.clear();
    }
    const size_t before = ids.size();
    merge(text.substr(begin, end - begin), ids);
    Known& known = cache_.at(text, begin, end);
    known.count = int32_t(ids.size() - before);
    if (known.count <= 3) {
        std::copy(ids.begin() + ptrdiff_t(before), ids.end(), known.ids);
    } else {
        known.ids[0] = int32_t(ids_.size());
        ids_.insert(ids_.end(), ids.begin() + ptrdiff_t(before), ids.end());
    }
}

void Bpe::Encoder::merge(std::string_view piece, std::vector<int32_t>& ids) {
    if (piece.size() > longest_word)
        throw ConfigError(
            "a word that the tokenizer does not split has {} bytes, but the maximum is {} MiB; break it "
            "into lines, or remove it",
            piece.size(), longest_word >> 20);
    if (bpe_->options_.whole_pieces)
        if (const int32_t* whole = bpe_->id_of_piece_.find(piece)) return ids.push_back(*whole);
    start(piece);
    parts_.size() <= most_few ? merge_few(ids) : merge_many(ids);
}

// Sets the symbols of a piece. The token of an unknown symbol waits until the next symbol that the vocabulary
// has, or that is unknown too. As in tokenizers, the bytes of a character do not end its waiting.
void Bpe::Encoder::start(std::string_view piece) {
    parts_.clear();
    const Options& options = bpe_->options_;
    bool waiting = false;
    const auto put_waiting = [&] {
        if (waiting) parts_.push_back(*options.unknown);
    };
    for (size_t at = 0, count = 0; at < piece.size(); at += count) {
        count = options.characters ? character_bytes(piece[at]) : 1;
        const std::string_view symbol = piece.substr(at, count);
        if (const int32_t id = bpe_->id_of_symbol(symbol); id >= 0) {
            put_waiting();
            waiting = false;
            parts_.push_back(id);
        } else if (!start_from_bytes_of(symbol) && options.unknown) {
            if (!options.fuse_unknown) put_waiting();
            waiting = true;
        }
    }
    put_waiting();
}

bool Bpe::Encoder::start_from_bytes_of(std::string_view character) {
    const std::vector<int32_t>& tokens = bpe_->options_.byte_tokens;
    if (tokens.empty()) return false;
    for (const char byte : character)
        if (tokens[uint8_t(byte)] < 0) return false;
    for (const char byte : character) parts_.push_back(tokens[uint8_t(byte)]);
    return true;
}

// Keeps a table with the rank and the result of each part's merge with the next part.
void Bpe::Encoder::merge_few(std::vector<int32_t>& ids) {
    size_t count = parts_.size();
    ranks_.resize(count);
    results_.resize(count);
    const auto look_up = [&](size_t i) {
        const Ranked* const ranked = i + 1 < count ? bpe_->find(parts_[i], parts_[i + 1]) : nullptr;
        ranks_[i] = ranked ? ranked->rank : no_merge;
        results_[i] = ranked ? ranked->result : -1;
    };
    for (size_t i = 0; i < count; ++i) look_up(i);
    while (count > 1) {
        const auto best =
            std::min_element(ranks_.begin(), ranks_.begin() + ptrdiff_t(count));  // the leftmost minimum
        if (*best == no_merge) break;
        const auto at = size_t(best - ranks_.begin());
        parts_[at] = results_[at];
        --count;
        const auto close_gap = [&](std::vector<int32_t>& all) {
            std::copy(all.begin() + ptrdiff_t(at) + 2, all.begin() + ptrdiff_t(count) + 1,
                      all.begin() + ptrdiff_t(at) + 1);
        };
        close_gap(parts_);
        close_gap(ranks_);
        close_gap(results_);
        look_up(at);
        if (at > 0) look_up(at - 1);
    }
    ids.insert(ids.end(), parts_.begin(), parts_.begin() + ptrdiff_t(count));
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

void Bpe::Encoder::merge_many(std::vector<int32_t>& ids) {
    symbols_.clear();
    for (const int32_t id : parts_) {
        const auto here = int32_t(symbols_.size());
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
        // an earlier merge may have used either side
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
