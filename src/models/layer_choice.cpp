// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/layer_choice.hpp"

#include "coeus/base/types.hpp"

#include <algorithm>

namespace coeus {

LayerChoice LayerChoice::of(const std::vector<bool>& has, const LayerChoice& rule) {
    const auto begin = std::ranges::find(has, true);
    if (begin == has.end()) return {.period = 0};
    const auto second = std::find(begin + 1, has.end(), true);
    LayerChoice regular = {.first = begin - has.begin()};
    if (second != has.end()) regular.period = second - begin;
    const auto is_like = [&](const LayerChoice& choice) {
        for (size_t i = 0; i < has.size(); ++i)
            if (has[i] != choice.has(int64_t(i))) return false;
        return true;
    };
    // a single layer is regular only if it is the last one: then all further ones are like it
    if (is_like(regular)) return regular;
    std::string list;
    for (const bool chosen : has) list += chosen ? '1' : '0';
    for (size_t length = 2; 2 * length <= list.size(); ++length)
        if (std::equal(list.begin() + int64_t(length), list.end(), list.begin()))
            return {.word = list.substr(0, length)};
    return is_like(rule) ? rule : LayerChoice{.word = list};
}

bool LayerChoice::has_same(const LayerChoice& other, int64_t layers) const {
    for (int64_t i = 0; i < layers; ++i)
        if (has(i) != other.has(i)) return false;
    return true;
}

int64_t LayerChoice::before(int64_t layer) const {
    if (word.empty()) return period > 0 && layer > first ? div_ceil(layer - first, period) : 0;
    const int64_t length = int64_t(word.size());
    return layer / length * std::ranges::count(word, '1') +
           std::count(word.begin(), word.begin() + layer % length, '1');
}

}  // namespace coeus
