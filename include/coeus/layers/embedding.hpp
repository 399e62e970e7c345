// SPDX-License-Identifier: Apache-2.0
// Embedding: the rows of a table by token.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class Embedding {
public:
    explicit Embedding(const Storage& table) : table_(&table) {}  // [V, D]

    /// The batch's tokens -> [T, D], kept.
    Tensor forward(Ctx& c) const;
    void backward(Ctx& c, Tensor dy) const;

private:
    const Storage* table_;
};

}  // namespace coeus
