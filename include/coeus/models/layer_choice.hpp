// SPDX-License-Identifier: Apache-2.0
// LayerChoice: some of the layers of a model: those with a window, without RoPE, with experts
// (decoder_config.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

/// A choice of any layers. It also says which ones it takes in a model with another number of layers, unless
/// it is a list.
struct LayerChoice {
    /// A regular choice: the layers from number `first` on, each `period`-th. Period 0: none.
    int64_t period = 1, first = 0;
    /// Any other choice, instead: a 1 for each layer that it takes and a 0 for each other one, from layer 0
    /// on, repeated. "111110": all but each sixth. A list has a digit for every layer. Empty: regular.
    std::string word = {};

    /// The layers for which `has` is true, in the shortest form: regular, a word, or a list. `rule`: the
    /// usual choice where the list comes from; it is taken instead of a list with the same layers.
    static LayerChoice of(const std::vector<bool>& has, const LayerChoice& rule);
    bool has(int64_t layer) const {
        if (!word.empty()) return word[size_t(layer) % word.size()] == '1';
        return period > 0 && layer >= first && (layer - first) % period == 0;
    }
    /// True if it takes the same ones of so many layers as `other`.
    bool has_same(const LayerChoice& other, int64_t layers) const;
    /// How many layers before number `layer` it takes.
    int64_t before(int64_t layer) const;
    /// True if it is a list of the layers of a model with so many: no word that this model repeats.
    bool is_list(int64_t layers) const { return 2 * int64_t(word.size()) > layers; }
    bool operator==(const LayerChoice&) const = default;
};

}  // namespace coeus
