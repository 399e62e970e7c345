// SPDX-License-Identifier: Apache-2.0
#include "support/copy_converting.hpp"

#include <type_traits>

namespace coeus::test {

namespace {

/// Calls f(element) for every element, row by row; T is the type of the elements.
template <class T, class F>
void for_elements(const Tensor& t, F f) {
    if (t.count() == 0) return;
    for (int64_t r = 0; r < t.rows(); ++r) {
        T* const row = static_cast<T*>(t.data) + r * t.ld;
        for (int64_t c = 0; c < t.cols(); ++c) f(row[c]);
    }
}

/// Calls f with a value of the element type, if it is one that the cases have many of; otherwise returns
/// false.
template <class F>
bool with_type(Dtype dtype, F f) {
    switch (dtype) {
        case Dtype::f64: return f(double()), true;
        case Dtype::f32: return f(float()), true;
        case Dtype::bf16: return f(bf16()), true;
        case Dtype::i32: return f(int32_t()), true;
        case Dtype::u8: return f(uint8_t()), true;
        default: return false;
    }
}

}  // namespace

// element() and set_element() find type and place of each element again, which would take most of the time of
// kernels' tests.
std::vector<double> values_of(const Tensor& t) {
    std::vector<double> values(size_t(t.count()));
    const bool done = with_type(t.dtype, [&]<class T>(T) {
        double* to = values.data();
        for_elements<const T>(t, [&](const T& from) {
            if constexpr (std::is_same_v<T, bf16>)
                *to++ = double(float(from));
            else
                *to++ = double(from);
        });
    });
    for (int64_t i = 0; !done && i < t.count(); ++i) values[size_t(i)] = element(t, i);
    return values;
}

void set_values(const Tensor& t, std::span<const double> values) {
    require(t.count() == int64_t(values.size()), "there are not as many values as elements");
    const bool done = with_type(t.dtype, [&]<class T>(T) {
        const double* from = values.data();
        for_elements<T>(t, [&](T& to) {
            if constexpr (std::is_same_v<T, bf16>)
                to = bf16(float(*from++));
            else
                to = T(*from++);
        });
    });
    for (int64_t i = 0; !done && i < t.count(); ++i) set_element(t, i, values[size_t(i)]);
}

}  // namespace coeus::test
