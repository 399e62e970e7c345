// SPDX-License-Identifier: Apache-2.0
// Embedding: a block that looks up rows of a table by token, the first one of a language model.
// Tensor-parallel ranks divide the vocabulary.
#pragma once

#include "coeus/layers/block.hpp"

namespace coeus {

/// The tokens whose rows of a table [V, D] this rank has.
inline VocabularyPart vocabulary_part(const Storage& table, double scale) {
    const Param& param = table.params().front();
    return {.first = param.local.first_row, .total = param.shape.rows(), .scale = scale};
}

class Embedding : public Block {
public:
    /// `table`: [V/P, D]. `depth`: looks up the tokens so many places ahead. `scale`, above 0: multiplies the
    /// rows.
    explicit Embedding(const Storage& table, int64_t depth = 0, double scale = 1)
        : table_(&table), depth_(depth), scale_(scale) {}

    /// Appends the rows of the batch's T tokens, [T/P, D], kept, to the flow.
    Flow forward(Ctx& c, Flow in) const override;
    /// Adds to the table's gradient and returns the gradients of the other tensors.
    Flow backward(Ctx& c, Flow dout) const override;
    bool is_lookup() const override { return true; }

private:
    const Storage* table_;
    int64_t depth_;
    double scale_;
};

}  // namespace coeus
