// SPDX-License-Identifier: Apache-2.0
// Tensor: a typed view of memory that something else owns; always passed by value.
#pragma once

#include "coeus/base/types.hpp"

#include <type_traits>

namespace coeus {

/// A view of up to four extents, seen as a matrix of shape.rows() x shape.cols() with rows `ld` elements
/// apart and the elements of a row adjacent. It never owns memory. In a planning run `data` must not be
/// dereferenced.
struct Tensor {
    void* data = nullptr;
    Dtype dtype = Dtype::f32;
    Shape shape;
    int64_t ld = 0;  ///< distance between rows in elements; equals cols() if the rows are adjacent
    const float* scale = nullptr;  ///< fp8 only: value = element / *scale

    Tensor() = default;
    Tensor(void* d, Dtype t, const Shape& s) : data(d), dtype(t), shape(s), ld(s.cols()) {}

    /// False for an optional operand that was not given.
    explicit operator bool() const { return shape.rank > 0; }
    int64_t rows() const { return shape.rows(); }
    int64_t cols() const { return shape.cols(); }
    int64_t count() const { return shape.count(); }
    int64_t bytes() const { return count() * size_of(dtype); }
    bool dense() const { return ld == cols(); }

    /// The elements; T may be const. LogicError if the tensor has another element type.
    template <class T>
    T* as() const {
        require(dtype == dtype_of<std::remove_const_t<T>>(), "tensor holds another element type");
        return static_cast<T*>(data);
    }
    /// The first element of row i.
    template <class T>
    T* row(int64_t i) const {
        return as<T>() + i * ld;
    }

    /// Rows [first, first + count) as a matrix (as a vector if this is a vector).
    Tensor slice_rows(int64_t first, int64_t count) const;
    /// Columns [first, first + count) as a matrix; keeps ld.
    Tensor slice_cols(int64_t first, int64_t count) const;
    /// The same elements with another shape; rows must be dense.
    Tensor reshape(const Shape& s) const;
};

/// Element i (counted in dense order) as a double, to read and to write; for tests, files and messages.
double element(const Tensor& t, int64_t i);
void set_element(const Tensor& t, int64_t i, double value);

}  // namespace coeus
