// SPDX-License-Identifier: Apache-2.0
// Embedding: the first block of a language model, which looks up rows of a table by token. Tensor-parallel
// ranks divide the vocabulary.
#pragma once

#include "coeus/layers/block.hpp"

namespace coeus {

/// The tokens whose rows of a table [V, D] this rank has.
inline VocabularyPart vocabulary_part(const Storage& table) {
    const Param& param = table.params().front();
    return {.first = param.local.first_row, .total = param.shape.rows()};
}

class Embedding : public Block {
public:
    explicit Embedding(const Storage& table) : table_(&table) {}  // [V/P, D]

    /// The batch's T tokens -> [T/P, D], kept. `in` is empty.
    Flow forward(Ctx& c, Flow in) const override;
    /// Adds to the table's gradient and returns an empty flow.
    Flow backward(Ctx& c, Flow dout) const override;
    bool is_lookup() const override { return true; }

private:
    const Storage* table_;
};

}  // namespace coeus
