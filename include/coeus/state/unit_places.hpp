// SPDX-License-Identifier: Apache-2.0
// UnitPlaces: the places of units in a buffer that is smaller than all of them together. Units that are used
// one after the other (neighbours) are there at the same time and never overlap; others take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace coeus {

/// Pairs of units, by their numbers, in any order.
using Neighbours = std::vector<std::pair<size_t, size_t>>;

struct UnitPlaces {
    std::vector<int64_t> first;  ///< offset of each unit in the buffer, in bytes
    int64_t bytes = 0;           ///< size of the buffer
};

/// Places units with these sizes in bytes. The units of a chain of neighbours alternate between both ends of
/// the buffer, which is then as large as the two largest neighbours, the smallest possible size. A cycle of
/// an odd number of units needs room for three units in a row, the lightest such three, if that is more.
/// LogicError if a unit is its own neighbour.
UnitPlaces place_units(std::span<const int64_t> bytes, const Neighbours& neighbours);

}  // namespace coeus
