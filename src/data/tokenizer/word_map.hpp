// SPDX-License-Identifier: Apache-2.0
// A hash map from short byte strings to values: open addressing, keys copied into one block. A look-up of a
// known word costs about 20 ns and never allocates; this is the inner loop of counting and of encoding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

template <class Value>
class WordMap {
public:
    WordMap() : slots_(1024) {}

    /// The value of a word, default-made where the word is new. The reference lives until the next call.
    Value& operator[](std::string_view word) {
        const uint64_t hash = std::hash<std::string_view>()(word) | 1;  // 0 marks an empty slot
        size_t at = place(hash);
        while (slots_[at].hash) {
            Slot& slot = slots_[at];
            if (slot.hash == hash && slot.length == word.size() &&
                std::memcmp(keys_.data() + slot.begin, word.data(), word.size()) == 0)
                return slot.value;
            at = (at + 1) & (slots_.size() - 1);
        }
        if (2 * ++size_ > slots_.size()) {
            grow();
            at = place(hash);
            while (slots_[at].hash) at = (at + 1) & (slots_.size() - 1);
        }
        slots_[at] = {hash, keys_.size(), word.size(), Value{}};
        keys_.append(word);
        return slots_[at].value;
    }

    size_t size() const { return size_; }
    size_t key_bytes() const { return keys_.size(); }

    void clear() {
        std::fill(slots_.begin(), slots_.end(), Slot{});
        keys_.clear();
        size_ = 0;
    }

    /// Calls visit(word, value) for all, in no useful order.
    template <class Visit>
    void each(Visit visit) const {
        for (const Slot& slot : slots_)
            if (slot.hash) visit(std::string_view(keys_).substr(slot.begin, slot.length), slot.value);
    }

private:
    struct Slot {
        uint64_t hash = 0;
        size_t begin = 0, length = 0;
        Value value{};
    };

    size_t place(uint64_t hash) const { return size_t(hash >> 16) & (slots_.size() - 1); }

    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (!slot.hash) continue;
            size_t at = place(slot.hash);
            while (slots_[at].hash) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = slot;
        }
    }

    std::vector<Slot> slots_;  // a power of two
    std::string keys_;
    size_t size_ = 0;
};

}  // namespace coeus
