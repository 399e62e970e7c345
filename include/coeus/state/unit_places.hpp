// SPDX-License-Identifier: Apache-2.0
// UnitPlaces: where units lie in one buffer that is smaller than all of them together. Units that are used
// one after the other (neighbours) are there at the same time, so they never overlap; others take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace coeus {

/// Pairs of units by their numbers, in any order.
using Neighbours = std::vector<std::pair<size_t, size_t>>;

struct UnitPlaces {
    std::vector<int64_t> first;  ///< first byte of each unit in the buffer
    int64_t bytes = 0;           ///< of the buffer
};

/// Places units of so many bytes each. A chain of neighbours lies at both ends of the buffer in turns, which
/// is then as large as the two largest neighbours, the least that is possible. A circle of an odd number of
/// units takes the three lightest units in a line if these are larger. LogicError if a unit is its own
/// neighbour.
UnitPlaces place_units(std::span<const int64_t> bytes, const Neighbours& neighbours);

}  // namespace coeus
