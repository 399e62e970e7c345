// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/convert.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace coeus {

namespace {

template <class To, class From>
To converted(From value) {
    if constexpr (std::is_same_v<From, f16>)
        return converted<To>(to_float(value));
    else if constexpr (std::is_same_v<From, bf16>)
        return converted<To>(float(value));
    else if constexpr (std::is_same_v<To, f16>)
        return to_f16(float(value));
    else if constexpr (std::is_same_v<To, bf16>)
        return bf16(float(value));
    else
        return To(value);
}

template <class To, class From>
void convert_run(void* to, const void* from, int64_t count) {
    auto* out = static_cast<std::byte*>(to);
    const auto* in = static_cast<const std::byte*>(from);
    for (int64_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, in + i * int64_t(sizeof(From)), sizeof value);
        const To result = converted<To>(value);
        std::memcpy(out + i * int64_t(sizeof(To)), &result, sizeof result);
    }
}

/// Calls `use` with a value of the C++ type of a floating-point dtype; false for other dtypes. with_integer()
/// does the same for integer dtypes.
template <class Use>
bool with_float(Dtype dtype, Use use) {
    switch (dtype) {
        case Dtype::f64: use(double()); return true;
        case Dtype::f32: use(float()); return true;
        case Dtype::f16: use(f16()); return true;
        case Dtype::bf16: use(bf16()); return true;
        default: return false;
    }
}

template <class Use>
bool with_integer(Dtype dtype, Use use) {
    switch (dtype) {
        case Dtype::i64: use(int64_t()); return true;
        case Dtype::i32: use(int32_t()); return true;
        case Dtype::u8: use(uint8_t()); return true;
        default: return false;
    }
}

}  // namespace

bool can_convert(Dtype to, Dtype from) {
    const auto nothing = [](auto) {};
    return (with_float(to, nothing) && with_float(from, nothing)) ||
           (with_integer(to, nothing) && with_integer(from, nothing));
}

void convert_elements(void* to, Dtype to_type, const void* from, Dtype from_type, int64_t count) {
    if (count == 0) return;
    if (to_type == from_type) {
        std::memcpy(to, from, size_t(count * size_of(to_type)));
        return;
    }
    require(can_convert(to_type, from_type), "a conversion between floats and integers");
    const auto from_known = [&](auto source) {
        const auto run = [&](auto target) {
            convert_run<decltype(target), decltype(source)>(to, from, count);
        };
        if constexpr (std::is_integral_v<decltype(source)>)
            with_integer(to_type, run);
        else
            with_float(to_type, run);
    };
    if (!with_float(from_type, from_known)) with_integer(from_type, from_known);
}

}  // namespace coeus
