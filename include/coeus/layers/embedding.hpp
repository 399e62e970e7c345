// SPDX-License-Identifier: Apache-2.0
// Embedding: the rows of a table by token. Tensor-parallel ranks divide the vocabulary.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

/// The tokens whose rows a rank has of a table [V, D].
inline VocabularyPart vocabulary_part(const Storage& table) {
    const Param& param = table.params().front();
    return {.first = param.local.first_row, .total = param.shape.rows()};
}

class Embedding {
public:
    explicit Embedding(const Storage& table) : table_(&table) {}  // [V/P, D]

    /// The batch's T tokens -> [T/P, D], kept.
    Tensor forward(Ctx& c) const;
    void backward(Ctx& c, Tensor dy) const;

private:
    const Storage* table_;
};

}  // namespace coeus
