// SPDX-License-Identifier: Apache-2.0
// Rows: a matrix in the form that row-wise kernels take.
#pragma once

#include "../math.hpp"
#include "coeus/device/tensor.hpp"

namespace coeus::rows {

/// Rows that are `ld` elements apart; each row of an absent tensor is null.
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
