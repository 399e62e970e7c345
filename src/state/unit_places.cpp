// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/unit_places.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace coeus {

namespace {

using Lists = std::vector<std::vector<size_t>>;  // the neighbours of each unit

constexpr int64_t not_placed = -1;

// Places one unit after the other, beginning with `begin` and continuing with unit 0 after the last. Each is
// placed at the beginning of the buffer, else at its end, else next to a neighbour, wherever no neighbour is.
std::optional<std::vector<int64_t>> place_within(int64_t capacity, std::span<const int64_t> bytes,
                                                 const Lists& neighbours, size_t begin) {
    std::vector<int64_t> first(bytes.size(), not_placed);
    for (size_t i = 0; i < bytes.size(); ++i) {
        const size_t unit = (begin + i) % bytes.size();
        std::vector<int64_t> choices = {0, capacity - bytes[unit]};
        for (const size_t other : neighbours[unit])
            if (first[other] != not_placed)
                choices.insert(choices.end(), {first[other] + bytes[other], first[other] - bytes[unit]});
        const auto is_free = [&](int64_t at) {
            return at >= 0 && at + bytes[unit] <= capacity &&
                   std::ranges::none_of(neighbours[unit], [&](size_t other) {
                       return first[other] != not_placed && first[other] < at + bytes[unit] &&
                              at < first[other] + bytes[other];
                   });
        };
        const auto choice = std::ranges::find_if(choices, is_free);
        if (choice == choices.end()) return {};
        first[unit] = *choice;
    }
    return first;
}

// Sizes that a buffer may need, the smallest first. It holds each pair of neighbours; for an odd cycle of
// neighbours, three units in a row; at most all units.
std::vector<int64_t> capacities(std::span<const int64_t> bytes, const Lists& neighbours) {
    int64_t least = bytes.empty() ? 0 : std::ranges::max(bytes);
    for (size_t unit = 0; unit < bytes.size(); ++unit)
        for (const size_t other : neighbours[unit]) least = std::max(least, bytes[unit] + bytes[other]);
    std::vector<int64_t> all = {least, std::accumulate(bytes.begin(), bytes.end(), int64_t(0))};
    for (size_t unit = 0; unit < bytes.size(); ++unit)
        for (const size_t a : neighbours[unit])
            for (const size_t b : neighbours[unit])
                if (a < b) all.push_back(bytes[a] + bytes[unit] + bytes[b]);
    std::erase_if(all, [&](int64_t capacity) { return capacity < least; });
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

}  // namespace

UnitPlaces place_units(std::span<const int64_t> bytes, const Neighbours& neighbours) {
    Lists lists(bytes.size());
    for (const auto& [a, b] : neighbours) {
        require(a != b && a < bytes.size() && b < bytes.size(), "neighbours must be two different units");
        lists[a].push_back(b);
        lists[b].push_back(a);
    }
    for (const int64_t capacity : capacities(bytes, lists))
        for (size_t i = 0; i < bytes.size(); ++i) {
            // unit 0 first, then the last, the last but one, ...: a unit between two others is late in the
            // model
            const size_t begin = (bytes.size() - i) % bytes.size();
            if (const auto first = place_within(capacity, bytes, lists, begin)) return {*first, capacity};
        }
    require(bytes.empty(), "a buffer that holds all units has a place for each");
    return {};
}

}  // namespace coeus
