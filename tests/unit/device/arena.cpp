// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/arena.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;

namespace {

bool aligned(const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data) % 64 == 0;
}

}  // namespace

TEST_CASE("an arena returns aligned pieces of memory, one after the other") {
    Arena arena(256, "test");
    CHECK_FALSE(arena.planning());
    const Tensor a = arena.alloc(Dtype::u8, {1});
    const Tensor b = arena.alloc(Dtype::f64, {3, 3});
    CHECK(aligned(a));
    CHECK(aligned(b));
    CHECK(static_cast<std::byte*>(b.data) - static_cast<std::byte*>(a.data) == 64);
    CHECK(b.shape == Shape{3, 3});
    CHECK(arena.mark() == 64 + 128);
    CHECK(arena.alloc(Dtype::f32, {0}).count() == 0);
    arena.alloc(Dtype::u8, {64});  // exactly to the end
    CHECK(arena.peak() == 256);
}

TEST_CASE("an arena that is too small names itself and the request") {
    Arena arena(128, "temporaries");
    arena.alloc(Dtype::f32, {16});
    CHECK_THROWS_AS(arena.alloc(Dtype::f32, {17}), LogicError);
    CHECK_THROWS_WITH(
        arena.alloc(Dtype::f32, {17}),
        Catch::Contains("arena 'temporaries' of 128 bytes is too small: 64 in use, 128 more wanted"));
    arena.alloc(Dtype::f32, {16});  // the failed requests took nothing
    CHECK(arena.peak() == 128);
}

TEST_CASE("a scope returns all of its memory, inner before outer") {
    Arena arena(1024, "test");
    const Tensor kept = arena.alloc(Dtype::f64, {2});
    set_element(kept, 1, 5);
    {
        const Scope outer(arena);
        const Tensor a = arena.alloc(Dtype::f64, {8});
        {
            const Scope inner(arena);
            arena.alloc(Dtype::f64, {8});
            CHECK(arena.mark() == 192);
        }
        CHECK(arena.mark() == 128);
        CHECK(arena.alloc(Dtype::f64, {8}).data == static_cast<std::byte*>(a.data) + 64);
    }
    CHECK(arena.mark() == 64);
    CHECK(arena.peak() == 192);
    CHECK(element(kept, 1) == 5);
#ifdef COEUS_DEBUG
    CHECK(std::isnan(element(arena.alloc(Dtype::f64, {8}), 3)));
#endif
}

TEST_CASE("a planning arena measures without memory or limit") {
    Arena arena;
    CHECK(arena.planning());
    const Tensor a = arena.alloc(Dtype::f32, {int64_t(1) << 40});
    const Tensor b = arena.alloc(Dtype::f32, {1});
    CHECK(aligned(a));
    CHECK(aligned(b));
    CHECK(a.data != b.data);
    CHECK(arena.peak() == (int64_t(4) << 40) + 64);
    arena.rewind(0);
    CHECK(arena.mark() == 0);
    CHECK(arena.peak() == (int64_t(4) << 40) + 64);
}

TEST_CASE("a touch raises only the peak") {
    Arena arena;
    arena.alloc(Dtype::u8, {64});
    arena.touch(65);
    CHECK(arena.peak() == 192);
    CHECK(arena.mark() == 64);
    arena.touch(0);
    CHECK(arena.peak() == 192);
}
