// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/tensor.hpp"

#include <cstring>

namespace coeus {

namespace {

// Integer arithmetic, because the addresses of a planning run belong to no object.
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

double element(const Tensor& t, int64_t i) {
    const int64_t at = i / t.cols() * t.ld + i % t.cols();
    switch (t.dtype) {
        case Dtype::f64: return t.as<const double>()[at];
        case Dtype::f32: return double(t.as<const float>()[at]);
        case Dtype::bf16: return double(float(t.as<const bf16>()[at]));
        case Dtype::f16: return double(to_float(t.as<const f16>()[at]));
        case Dtype::i32: return double(t.as<const int32_t>()[at]);
        case Dtype::i64: return double(t.as<const int64_t>()[at]);
        case Dtype::u8: return double(t.as<const uint8_t>()[at]);
        default: throw LogicError("element(): fp8 needs a kernel");
    }
}

void set_element(const Tensor& t, int64_t i, double value) {
    const int64_t at = i / t.cols() * t.ld + i % t.cols();
    switch (t.dtype) {
        case Dtype::f64: t.as<double>()[at] = value; return;
        case Dtype::f32: t.as<float>()[at] = float(value); return;
        case Dtype::bf16: t.as<bf16>()[at] = bf16(float(value)); return;
        case Dtype::f16: t.as<f16>()[at] = to_f16(float(value)); return;
        case Dtype::i32: t.as<int32_t>()[at] = int32_t(value); return;
        case Dtype::i64: t.as<int64_t>()[at] = int64_t(value); return;
        case Dtype::u8: t.as<uint8_t>()[at] = uint8_t(value); return;
        default: throw LogicError("set_element(): fp8 needs a kernel");
    }
}

void copy_converting(Tensor to, Tensor from) {
    require(to.count() == from.count() && to.rows() == from.rows(), "copied tensors differ in shape");
    if (to.dtype == from.dtype && to.dense() && from.dense()) {
        if (to.count() > 0) std::memcpy(to.data, from.data, size_t(to.bytes()));
    } else if (to.dtype == from.dtype) {
        const size_t bytes = size_t(to.cols() * size_of(to.dtype));
        for (int64_t r = 0; r < to.rows(); ++r)
            std::memcpy(to.slice_rows(r, 1).data, from.slice_rows(r, 1).data, bytes);
    } else {
        for (int64_t i = 0; i < to.count(); ++i) set_element(to, i, element(from, i));
    }
}

}  // namespace coeus
