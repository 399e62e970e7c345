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

}  // namespace

Tensor Tensor::slice_rows(int64_t first, int64_t count) const {
    require(first >= 0 && count >= 0 && first + count <= rows(), "row range outside the tensor");
    Tensor t = *this;
    t.data = offset(data, first * ld, dtype);
    t.shape = shape.rank < 2 ? Shape{count} : Shape{count, cols()};
    return t;
}

Tensor Tensor::slice_cols(int64_t first, int64_t count) const {
    require(shape.rank >= 2 && first >= 0 && count >= 0 && first + count <= cols(),
            "column range outside the tensor");
    Tensor t = *this;
    t.data = offset(data, first, dtype);
    t.shape = {rows(), count};
    return t;
}

Tensor Tensor::reshape(const Shape& s) const {
    require(s.count() == count() && dense(), "reshape needs as many elements and dense rows");
    Tensor t = *this;
    t.shape = s;
    t.ld = s.cols();
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

double element(const Tensor& t, int64_t i) {
    return with_type(t.dtype, "element", [&]<class T>(T) { return to_double(t.as<const T>()[place(t, i)]); });
}

void set_element(const Tensor& t, int64_t i, double value) {
    with_type(t.dtype, "set_element", [&]<class T>(T) { t.as<T>()[place(t, i)] = from_double<T>(value); });
}

}  // namespace coeus
