// SPDX-License-Identifier: Apache-2.0
// A hash map from short byte strings to values, with open addressing. Words of up to 15 bytes are stored in
// the slots as two numbers, longer ones in one block. This is the inner loop of counting and encoding: a
// look-up of a known word takes about 10 ns and never allocates.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

template <class Value>
class WordMap {
public:
    WordMap() : short_(1024), long_(64) {}

    /// The value of the word text[begin, end), which must not be empty; a default value if the word is
    /// new. May read bytes of `text` after the word. The reference is valid until the next call.
    Value& at(std::string_view text, size_t begin, size_t end) {
        return end - begin <= longest_short ? at_short(key_of(text, begin, end))
                                            : at_long(text.substr(begin, end - begin));
    }

    /// The value of a word, or nullptr if it is not in the map.
    const Value* find(std::string_view word) const {
        if (word.size() <= longest_short) {
            const Key key = key_of(word, 0, word.size());
            const Short& slot = slot_of(short_, key);
            return slot.key.high ? &slot.value : nullptr;
        }
        const Long& slot = long_slot_of(long_, word, hash_of(word));
        return slot.hash ? &slot.value : nullptr;
    }

    size_t size() const { return short_size_ + long_size_; }

    void clear() {
        std::fill(short_.begin(), short_.end(), Short{});
        std::fill(long_.begin(), long_.end(), Long{});
        letters_.clear();
        short_size_ = long_size_ = 0;
    }

    /// Calls visit(word, value) for all words, in an arbitrary order.
    template <class Visit>
    void each(Visit visit) const {
        for (const Short& slot : short_) {
            if (!slot.key.high) continue;
            char bytes[16];
            std::memcpy(bytes, &slot.key, 16);
            visit(std::string_view(bytes, slot.key.high >> 56), slot.value);
        }
        for (const Long& slot : long_)
            if (slot.hash) visit(std::string_view(letters_).substr(slot.begin, slot.length), slot.value);
    }

private:
    static_assert(std::endian::native == std::endian::little);
    static constexpr size_t longest_short = 15;

    // The bytes of the word, then zeros, with its length in the last byte. All zeros: an empty slot.
    struct Key {
        uint64_t low = 0, high = 0;
        bool operator==(const Key&) const = default;
    };
    struct Short {
        Key key;
        Value value{};
    };
    struct Long {
        uint64_t hash = 0;
        size_t begin = 0, length = 0;
        Value value{};
    };

    static Key key_of(std::string_view text, size_t begin, size_t end) {
        const size_t length = end - begin;
        Key key;
        if (begin + 16 <= text.size()) {
            std::memcpy(&key, text.data() + begin, 16);
            const uint64_t low_bits = length >= 8 ? ~uint64_t(0) : ~(~uint64_t(0) << (8 * length));
            const uint64_t high_bits = length <= 8 ? 0 : ~(~uint64_t(0) << (8 * (length - 8)));
            key.low &= low_bits;
            key.high &= high_bits;
        } else {
            std::memcpy(&key, text.data() + begin, length);
        }
        key.high |= uint64_t(length) << 56;
        return key;
    }

    static uint64_t hash_of(const Key& key) {
        const uint64_t mixed = key.low * 0x9E3779B97F4A7C15u + std::rotl(key.high, 29) * 0xD1B54A32D192ED03u;
        return mixed ^ (mixed >> 32);
    }

    static uint64_t hash_of(std::string_view word) {
        return std::hash<std::string_view>()(word) | 1;  // 0 marks an empty slot
    }

    // The slot of a word, or the empty slot for it.
    template <class Slots>
    static auto& slot_of(Slots& slots, const Key& key) {
        for (size_t at = hash_of(key);; ++at) {
            auto& slot = slots[at & (slots.size() - 1)];
            if (slot.key == key || slot.key.high == 0) return slot;
        }
    }
    template <class Slots>
    auto& long_slot_of(Slots& slots, std::string_view word, uint64_t hash) const {
        for (size_t at = hash >> 1;; ++at) {
            auto& slot = slots[at & (slots.size() - 1)];
            if (!slot.hash || (slot.hash == hash && slot.length == word.size() &&
                               std::memcmp(letters_.data() + slot.begin, word.data(), word.size()) == 0))
                return slot;
        }
    }

    Value& at_short(const Key& key) {
        Short& slot = slot_of(short_, key);
        if (slot.key.high) return slot.value;
        if (2 * ++short_size_ <= short_.size()) {
            slot.key = key;
            return slot.value;
        }
        std::vector<Short> old(short_.size() * 2);
        old.swap(short_);
        for (Short& moved : old)
            if (moved.key.high) slot_of(short_, moved.key) = std::move(moved);
        Short& place = slot_of(short_, key);
        place.key = key;
        return place.value;
    }

    Value& at_long(std::string_view word) {
        const uint64_t hash = hash_of(word);
        Long* slot = &long_slot_of(long_, word, hash);
        if (slot->hash) return slot->value;
        if (2 * ++long_size_ > long_.size()) {
            std::vector<Long> old(long_.size() * 2);
            old.swap(long_);
            for (Long& moved : old)
                if (moved.hash)
                    long_slot_of(long_, std::string_view(letters_).substr(moved.begin, moved.length),
                                 moved.hash) = std::move(moved);
            slot = &long_slot_of(long_, word, hash);
        }
        *slot = {hash, letters_.size(), word.size(), Value{}};
        letters_.append(word);
        return slot->value;
    }

    std::vector<Short> short_;  // sizes are powers of two
    std::vector<Long> long_;
    std::string letters_;  // of long words
    size_t short_size_ = 0, long_size_ = 0;
};

}  // namespace coeus
