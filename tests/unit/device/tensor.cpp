// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/tensor.hpp"

#include "coeus/device/memory.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/support.hpp"

#include <cmath>
#include <numeric>
#include <vector>

using namespace coeus;

namespace {

// [rows, cols] with the elements 0, 1, 2, ...
struct Counted {
    std::vector<float> data;
    Tensor view;

    Counted(const Shape& shape) : data(size_t(shape.count())), view(data.data(), Dtype::f32, shape) {
        std::iota(data.begin(), data.end(), 0.0f);
    }
};

}  // namespace

TEST_CASE("a tensor can be seen as a matrix whose columns are its last extent") {
    const Counted t({2, 3, 4});
    CHECK(t.view.rows() == 6);
    CHECK(t.view.cols() == 4);
    CHECK(t.view.count() == 24);
    CHECK(t.view.bytes() == 96);
    CHECK(t.view.dense());
    CHECK(t.view.row<float>(5)[3] == 23);
    CHECK(bool(t.view));
    CHECK_FALSE(bool(Tensor()));

    const Counted vector({5});
    CHECK(vector.view.rows() == 5);
    CHECK(vector.view.cols() == 1);
    CHECK(vector.view.dense());
}

TEST_CASE("rows and columns are sliced in place") {
    const Counted t({4, 6});
    const Tensor rows = t.view.slice_rows(1, 2);
    CHECK(rows.shape == Shape{2, 6});
    CHECK(element(rows, 0) == 6);
    CHECK(rows.dense());
    const Tensor columns = rows.slice_cols(2, 3);
    CHECK(columns.shape == Shape{2, 3});
    CHECK_FALSE(columns.dense());
    CHECK(columns.ld == 6);
    CHECK(element(columns, 0) == 8);
    CHECK(element(columns, 3) == 14);  // of the second row
    set_element(columns, 5, -1);
    CHECK(t.data[16] == -1);
    CHECK(element(columns.slice_rows(1, 1), 1) == 15);

    const Counted vector({5});
    const Tensor part = vector.view.slice_rows(3, 2);
    CHECK(part.shape == Shape{2});
    CHECK(element(part, 1) == 4);
    CHECK(t.view.slice_rows(4, 0).count() == 0);
}

TEST_CASE("slices outside a tensor are refused") {
    const Counted t({4, 6});
    const Counted vector({5});
    for (const auto& [first, count] :
         std::vector<std::pair<int64_t, int64_t>>{{-1, 1}, {0, 5}, {4, 1}, {2, -1}})
        CHECK_THROWS_WITH(t.view.slice_rows(first, count), Catch::Contains("row range outside the tensor"));
    for (const auto& [first, count] :
         std::vector<std::pair<int64_t, int64_t>>{{-1, 1}, {0, 7}, {6, 1}, {2, -1}})
        CHECK_THROWS_WITH(t.view.slice_cols(first, count),
                          Catch::Contains("column range outside the tensor"));
    CHECK_THROWS_AS(t.view.slice_rows(0, 5), LogicError);
    CHECK_THROWS_WITH(vector.view.slice_cols(0, 1), Catch::Contains("column range outside the tensor"));
}

TEST_CASE("a reshape keeps the elements and needs dense rows") {
    const Counted t({4, 6});
    const Tensor r = t.view.reshape({2, 3, 4});
    CHECK(r.shape == Shape{2, 3, 4});
    CHECK(r.ld == 4);
    CHECK(element(r, 23) == 23);
    CHECK(element(t.view.reshape({24}), 7) == 7);
    CHECK_THROWS_WITH(t.view.reshape({5, 5}), Catch::Contains("as many elements and dense rows"));
    CHECK_THROWS_WITH(t.view.slice_cols(0, 3).reshape({12}),
                      Catch::Contains("as many elements and dense rows"));
}

TEST_CASE("elements are read and written in every type but fp8") {
    for (const Dtype dtype :
         {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::i32, Dtype::i64, Dtype::u8}) {
        CAPTURE(name_of(dtype));
        const OwnedTensor t(dtype, {2, 3});
        CHECK(element(t, 5) == 0);
        set_element(t, 4, 7);
        CHECK(element(t, 4) == 7);
        CHECK(element(t, 3) == 0);
        CHECK(element(t, 5) == 0);
    }
    const OwnedTensor fp8(Dtype::fp8_e4m3, {1});
    CHECK_THROWS_WITH(element(fp8, 0), Catch::Contains("fp8 needs a kernel"));
    CHECK_THROWS_WITH(set_element(fp8, 0, 1), Catch::Contains("fp8 needs a kernel"));
}

TEST_CASE("a tensor's elements are only accessible as its own element type") {
    const Counted t({2});
    CHECK(t.view.as<const float>()[1] == 1);
    CHECK_THROWS_WITH(t.view.as<double>(), Catch::Contains("another element type") &&
                                               Catch::Contains("internal error") &&
                                               Catch::Contains("tensor.hpp:"));
}

TEST_CASE("copies convert types, also between rows that are not contiguous") {
    Counted from({3, 4});
    from.data[5] = 1.00390625f;  // halfway between two bf16 numbers: rounds to even, 1
    const OwnedTensor to(Dtype::bf16, {3, 2});
    test::copy_converting(to, from.view.slice_cols(1, 2));
    CHECK(element(to, 0) == 1);
    CHECK(element(to, 1) == 2);
    CHECK(element(to, 2) == 1);
    CHECK(element(to, 5) == 10);

    const OwnedTensor wide(Dtype::f32, {3, 4});
    test::copy_converting(wide.view.slice_cols(2, 2), from.view.slice_cols(0, 2));
    CHECK(element(wide, 0) == 0);
    CHECK(element(wide, 2) == 0);
    CHECK(element(wide, 11) == 9);
    CHECK_THROWS_WITH(test::copy_converting(to, from.view),
                      Catch::Contains("copied tensors differ in shape"));
    CHECK_THROWS_WITH(test::copy_converting(to, from.view.reshape({2, 6}).slice_cols(0, 3)),
                      Catch::Contains("copied tensors differ in shape"));
}

TEST_CASE("slices lose what kernels found, except the largest magnitude of the columns of a part") {
    int32_t bits[2] = {};
    uint8_t codes[24] = {};
    OwnedTensor owned(Dtype::f32, {4, 6});
    Tensor t = owned;
    t.largest = bits;
    t.largest_cols = 3;
    t.rounded = codes;
    CHECK(!t.has_largest());
    CHECK(t.slice_cols(0, 3).largest == bits);
    CHECK(t.slice_cols(0, 3).has_largest());
    CHECK(t.slice_cols(3, 3).largest == bits + 1);
    CHECK(t.slice_cols(3, 3).slice_cols(0, 3).largest == bits + 1);
    for (const Tensor& other :
         {t.slice_cols(1, 3), t.slice_cols(0, 2), t.slice_cols(0, 6), t.slice_cols(3, 3).slice_cols(0, 2),
          t.slice_rows(0, 2), t.slice_cols(3, 3).slice_rows(1, 1), t.reshape({2, 12})})
        CHECK((other.largest == nullptr && other.rounded == nullptr));
    CHECK(t.slice_cols(0, 3).rounded == nullptr);
}
