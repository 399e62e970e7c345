// SPDX-License-Identifier: Apache-2.0
// Tensor: a typed view of memory that something else owns; always passed by value.
#pragma once

#include "coeus/base/types.hpp"

#include <type_traits>

namespace coeus {

/// The groups of elements that have one scale in a tensor of 8-bit floats [R, C]. Blocks are 32 elements of a
/// row (rows32), or of a column (cols32). Blocks have scales of type u8 (E8M0), others f32.
///                scales
///   one          [1]
///   rows         [R]
///   cols         [C]; [G, C] if the rows are those of G matrices or groups
///   rows32       [R, C/32]
///   cols32       [R/32, C]
enum class ScaleGroups : uint8_t { none, one, rows, cols, rows32, cols32 };
inline constexpr int64_t scale_block = 32;

/// A view of up to four extents, seen as a matrix of shape.rows() x shape.cols() with rows `ld` elements
/// apart and the elements of a row adjacent. It never owns memory. In a planning run `data` must not be
/// dereferenced.
struct Tensor {
    void* data = nullptr;
    Dtype dtype = Dtype::f32;
    Shape shape;
    int64_t ld = 0;  ///< distance between rows in elements; equals cols() if the rows are adjacent
    /// 8-bit floats, and their values in bf16 if one scale is left: value = element * the scale of its group.
    /// Scales are as far apart as the elements' `ld` says.
    void* scale = nullptr;
    ScaleGroups groups = ScaleGroups::none;
    /// Optional: the largest magnitudes of parts of `largest_cols` columns each, i32 (Kernels::
    /// largest_magnitudes). A kernel that can find them while it writes the elements does so if there is
    /// room. Slices lose them, except the columns of one part.
    void* largest = nullptr;
    int64_t largest_cols = 0;
    /// Optional: the elements once more, rounded to 8 bits with a scale for each row (rounded_rows() in
    /// quantization.hpp): dense codes and their scales, f32; without scales, dense values in bf16. The same
    /// kernels write them. Slices lose them.
    void* rounded = nullptr;
    void* rounded_scale = nullptr;

    Tensor() = default;
    Tensor(void* d, Dtype t, const Shape& s) : data(d), dtype(t), shape(s), ld(s.cols()) {}

    /// False for an optional operand that was not given.
    explicit operator bool() const { return shape.rank > 0; }
    int64_t rows() const { return shape.rows(); }
    int64_t cols() const { return shape.cols(); }
    int64_t count() const { return shape.count(); }
    int64_t bytes() const { return count() * size_of(dtype); }
    /// True if the largest magnitude of all elements is at `largest`.
    bool has_largest() const { return largest && largest_cols == cols(); }
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

    /// Rows [first, first + count) as a matrix (as a vector if this is a vector). If blocks of rows have
    /// scales, `first` is a multiple of 32; likewise for columns.
    Tensor slice_rows(int64_t first, int64_t count) const;
    /// Columns [first, first + count) as a matrix; keeps ld.
    Tensor slice_cols(int64_t first, int64_t count) const;
    /// The same elements with another shape; rows must be dense.
    Tensor reshape(const Shape& s) const;
};

/// True for the types of 8-bit floats.
constexpr bool is_8_bit_float(Dtype type) {
    return type == Dtype::fp8_e4m3 || type == Dtype::fp8_e5m2;
}
/// Type and shape of the scales of a dense tensor of 8-bit floats. `matrices`: the number G of matrices or
/// groups of rows.
Dtype scale_type(ScaleGroups groups);
Shape scale_shape(ScaleGroups groups, const Shape& shape, int64_t matrices = 1);
/// The scales of a dense tensor.
Tensor scales_of(const Tensor& t, int64_t matrices = 1);

/// Element i (counted in dense order) as a double, to read and to write; for tests, files and messages. 8-bit
/// floats have no such element: LogicError.
double element(const Tensor& t, int64_t i);
void set_element(const Tensor& t, int64_t i, double value);

}  // namespace coeus
