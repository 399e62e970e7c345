// SPDX-License-Identifier: Apache-2.0
// Rows: a matrix as a row-wise kernel gets it.
#pragma once

#include "../math.hpp"
#include "coeus/device/tensor.hpp"

namespace coeus::rows {

/// Rows `ld` elements apart; of an absent tensor each row is null.
template <class T>
struct Rows {
    T* data;
    int64_t ld;
    COEUS_HD T* operator[](int64_t i) const { return data ? data + i * ld : nullptr; }
};
template <class T>
Rows<T> rows_of(const Tensor& t) {
    return t ? Rows<T>{t.as<T>(), t.ld} : Rows<T>{nullptr, 0};
}

}  // namespace coeus::rows
