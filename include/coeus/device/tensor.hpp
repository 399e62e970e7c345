// SPDX-License-Identifier: Apache-2.0
// Tensor: a typed view of memory that something else owns. Passed by value everywhere.
#pragma once

#include "coeus/base/types.hpp"

#include <type_traits>

namespace coeus {

/// A view of up to four extents, seen as a matrix of shape.rows() x shape.cols(), rows `ld` elements apart
/// and elements of a row adjacent. Never owns. In a planning run `data` is an address that nobody may follow.
struct Tensor {
    void* data = nullptr;
    Dtype dtype = Dtype::f32;
    Shape shape;
    int64_t ld = 0;                ///< distance between rows in elements; cols() where the rows are adjacent
    const float* scale = nullptr;  ///< fp8 only: value = element / *scale

    Tensor() = default;
    Tensor(void* d, Dtype t, const Shape& s) : data(d), dtype(t), shape(s), ld(s.cols()) {}

    /// False for a tensor that was not given (an optional operand).
    explicit operator bool() const { return shape.rank > 0; }
    int64_t rows() const { return shape.rows(); }
    int64_t cols() const { return shape.cols(); }
    int64_t count() const { return shape.count(); }
    int64_t bytes() const { return count() * size_of(dtype); }
    bool dense() const { return ld == cols(); }

    /// The elements; T may be const. Throws LogicError where the type is another one.
    template <class T>
    T* as() const {
        require(dtype == dtype_of<std::remove_const_t<T>>(), "tensor holds another element type");
        return static_cast<T*>(data);
    }
    /// First element of row i.
    template <class T>
    T* row(int64_t i) const {
        return as<T>() + i * ld;
    }

    /// Rows [first, first + count) as a matrix (or vector, for a vector).
    Tensor slice_rows(int64_t first, int64_t count) const;
    /// Columns [first, first + count); keeps ld.
    Tensor slice_cols(int64_t first, int64_t count) const;
    /// The same elements under another shape; needs dense rows.
    Tensor reshape(const Shape& s) const;
};

/// Element i (dense order) as a double; for tests, files and messages.
double element(const Tensor& t, int64_t i);
void set_element(const Tensor& t, int64_t i, double value);

}  // namespace coeus
