// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/tensor.hpp"

#include <cstring>
#include <string>
#include <type_traits>

namespace coeus {

namespace {

// Uses integer arithmetic, because the addresses of a planning run belong to no object.
void* offset(void* data, int64_t elements, Dtype dtype) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) + uintptr_t(elements * size_of(dtype)));
}

// The scales from a row or a column on.
void* scale_of_row(const Tensor& t, int64_t row) {
    switch (t.groups) {
        case ScaleGroups::rows: return offset(t.scale, row, Dtype::f32);
        case ScaleGroups::rows32: return offset(t.scale, row * (t.ld / scale_block), Dtype::u8);
        case ScaleGroups::cols32:
            require(row % scale_block == 0, "a slice begins within a block of rows with one scale");
            return offset(t.scale, row / scale_block * t.ld, Dtype::u8);
        default: return t.scale;
    }
}
void* scale_of_column(const Tensor& t, int64_t col) {
    switch (t.groups) {
        case ScaleGroups::cols: return offset(t.scale, col, Dtype::f32);
        case ScaleGroups::rows32:
            require(col % scale_block == 0, "a slice begins within a block of columns with one scale");
            return offset(t.scale, col / scale_block, Dtype::u8);
        case ScaleGroups::cols32: return offset(t.scale, col, Dtype::u8);
        default: return t.scale;
    }
}

}  // namespace

Tensor Tensor::slice_rows(int64_t first, int64_t count) const {
    require(first >= 0 && count >= 0 && first + count <= rows(), "row range outside the tensor");
    Tensor t = *this;
    t.data = offset(data, first * ld, dtype);
    t.scale = scale_of_row(*this, first);
    t.largest = t.rounded = nullptr;
    t.shape = shape.rank < 2 ? Shape{count} : Shape{count, cols()};
    return t;
}

Tensor Tensor::slice_cols(int64_t first, int64_t count) const {
    require(shape.rank >= 2 && first >= 0 && count >= 0 && first + count <= cols(),
            "column range outside the tensor");
    Tensor t = *this;
    t.data = offset(data, first, dtype);
    t.scale = scale_of_column(*this, first);
    const bool is_part = largest && count == largest_cols && first % count == 0;
    t.largest = is_part ? offset(largest, first / count, Dtype::i32) : nullptr;
    t.rounded = nullptr;
    t.shape = {rows(), count};
    return t;
}

Tensor Tensor::reshape(const Shape& s) const {
    require(s.count() == count() && dense(), "reshape needs as many elements and dense rows");
    Tensor t = *this;
    t.shape = s;
    t.ld = s.cols();
    t.largest = t.rounded = nullptr;
    return t;
}

namespace {

// Calls f with a value of the element type, and returns its result.
template <class F>
decltype(auto) with_type(Dtype dtype, const char* caller, F f) {
    switch (dtype) {
        case Dtype::f64: return f(double());
        case Dtype::f32: return f(float());
        case Dtype::bf16: return f(bf16());
        case Dtype::f16: return f(f16());
        case Dtype::i32: return f(int32_t());
        case Dtype::i64: return f(int64_t());
        case Dtype::u8: return f(uint8_t());
        default: throw LogicError(std::string(caller) + "(): fp8 needs a kernel");
    }
}

template <class T>
double to_double(T value) {
    if constexpr (std::is_same_v<T, bf16>)
        return double(float(value));
    else if constexpr (std::is_same_v<T, f16>)
        return double(to_float(value));
    else
        return double(value);
}

template <class T>
T from_double(double value) {
    if constexpr (std::is_same_v<T, bf16>)
        return bf16(float(value));
    else if constexpr (std::is_same_v<T, f16>)
        return to_f16(float(value));
    else
        return T(value);
}

int64_t place(const Tensor& t, int64_t i) {
    const int64_t cols = t.cols();
    return i / cols * t.ld + i % cols;
}

}  // namespace

Dtype scale_type(ScaleGroups groups) {
    return groups == ScaleGroups::rows32 || groups == ScaleGroups::cols32 ? Dtype::u8 : Dtype::f32;
}

Shape scale_shape(ScaleGroups groups, const Shape& shape, int64_t matrices) {
    switch (groups) {
        case ScaleGroups::none: return {0};
        case ScaleGroups::one: return {1};
        case ScaleGroups::rows: return {shape.rows()};
        case ScaleGroups::cols: return {matrices, shape.cols()};
        case ScaleGroups::rows32: return {shape.rows(), shape.cols() / scale_block};
        case ScaleGroups::cols32: return {shape.rows() / scale_block, shape.cols()};
    }
    return {};
}

Tensor scales_of(const Tensor& t, int64_t matrices) {
    require(t.dense(), "the scales of a tensor with gaps between its rows are not one tensor");
    return {t.scale, scale_type(t.groups), scale_shape(t.groups, t.shape, matrices)};
}

double element(const Tensor& t, int64_t i) {
    return with_type(t.dtype, "element", [&]<class T>(T) { return to_double(t.as<const T>()[place(t, i)]); });
}

void set_element(const Tensor& t, int64_t i, double value) {
    with_type(t.dtype, "set_element", [&]<class T>(T) { t.as<T>()[place(t, i)] = from_double<T>(value); });
}

}  // namespace coeus
