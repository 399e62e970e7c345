// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/convert.hpp"

#include "coeus/device/memory.hpp"
#include "support/catch.hpp"

#include <cstring>
#include <vector>

using namespace coeus;

TEST_CASE("conversions among floats and among integers, aligned or not", "[convert]") {
    const std::vector<Dtype> floats = {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16};
    const std::vector<Dtype> integers = {Dtype::i64, Dtype::i32, Dtype::u8};
    const std::vector<double> values = {0, 1, 2, 3.5, 96};  // exact in every type, except for 3.5 in integers
    for (const auto& family : {floats, integers})
        for (Dtype from : family)
            for (Dtype to : family) {
                const auto n = int64_t(values.size());
                OwnedTensor in(from, {n}), out(to, {n}), expected(to, {n});
                for (int64_t i = 0; i < n; ++i) {
                    set_element(in, i, values[size_t(i)]);
                    set_element(expected, i, values[size_t(i)]);
                }
                // both sides one byte off
                std::vector<std::byte> source(size_t(n * size_of(from)) + 1),
                    target(size_t(n * size_of(to)) + 1);
                std::memcpy(source.data() + 1, in.view.data, size_t(in.view.bytes()));
                convert_elements(target.data() + 1, to, source.data() + 1, from, n);
                std::memcpy(out.view.data, target.data() + 1, size_t(out.view.bytes()));
                CAPTURE(name_of(from), name_of(to));
                CHECK(can_convert(to, from));
                for (int64_t i = 0; i < n; ++i) CHECK(element(out, i) == element(expected, i));
            }
    CHECK_FALSE(can_convert(Dtype::f32, Dtype::i32));
    CHECK_FALSE(can_convert(Dtype::u8, Dtype::bf16));
    CHECK_FALSE(can_convert(Dtype::f32, Dtype::fp8_e4m3));
    float one = 1;
    int32_t none = 0;
    CHECK_THROWS_AS(convert_elements(&none, Dtype::i32, &one, Dtype::f32, 1), LogicError);
}

TEST_CASE("float32 to bfloat16 rounds to nearest even", "[convert]") {
    const float values[] = {1.00390625f, 1.01171875f, -1.00390625f,
                            1.005f};  // two ties, one negative, one not a tie
    const float expected[] = {1.f, 1.015625f, -1.f, 1.0078125f};
    bf16 rounded[4];
    convert_elements(rounded, Dtype::bf16, values, Dtype::f32, 4);
    for (int i = 0; i < 4; ++i) CHECK(float(rounded[i]) == expected[i]);
}
