// SPDX-License-Identifier: Apache-2.0
// The emulated TMA and its barriers: against plain loops, and what is reported if a kernel breaks a rule.
#include "../../../src/kernels/cuda/ptx/tma.hpp"

#include "../../../src/kernels/cuda/ptx/tensor_map.hpp"
#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::cuda;

namespace {

constexpr int64_t matrices = 3, stack_rows = 20, stack_columns = 72, ld = 80;
constexpr int box_rows = 16, box_bytes = box_rows * box_columns * int(sizeof(bf16));
constexpr size_t block_bytes = swizzle_bytes + 2 * box_bytes + 64;

// A stack of matrices, whose elements are their numbers, with NaN between rows.
struct Stack {
    std::vector<bf16> memory = std::vector<bf16>(size_t(matrices * stack_rows * ld), bf16(NAN));
    Tensor view{memory.data(), Dtype::bf16, {matrices * stack_rows, stack_columns}};

    Stack() {
        view.ld = ld;
        for (int64_t row = 0; row < matrices * stack_rows; ++row)
            for (int64_t column = 0; column < stack_columns; ++column)
                memory[size_t(row * ld + column)] = bf16(float(1 + (row * stack_columns + column) % 251));
    }
};

// Memory of a block: two boxes, and barriers.
struct Parts {
    bf16* box = first_panel(shared_memory());
    Barrier* barriers = reinterpret_cast<Barrier*>(box + 2 * box_bytes / int(sizeof(bf16)));
};

void run(unsigned threads, const std::function<void(Parts)>& body, uint64_t order = 1) {
    emulation::set_seed(order);
    emulation::run_grid(dim3(1), dim3(threads), block_bytes, [&] { body(Parts()); });
}

// Begins a barrier for this many arrivals.
void begin(Barrier& barrier, int arrivals) {
    if (threadIdx.x == 0) {
        barrier.begin(arrivals);
        show_barriers();
    }
    __syncthreads();
}

// What a kernel that is right otherwise does with a box.
struct BoxSteps {
    std::function<void(Barrier&)> show = [](Barrier&) { show_barriers(); };
    std::function<void(Barrier&)> expect = [](Barrier& b) { b.arrive_and_expect(box_bytes); };
    std::function<void(Parts)> after_copy = [](Parts) {};
    std::function<void(Barrier&)> wait = [](Barrier& b) { b.wait(0); };
    int places = 0;  // by which the box is moved, in elements
    bool has_map = true;
};

void copy_a_box(const BoxSteps& steps) {
    const Stack stack;
    const CUtensorMap map = steps.has_map ? boxes_of(stack.view, matrices, box_rows) : CUtensorMap{};
    run(32, [&](Parts p) {
        if (threadIdx.x != 0) return;
        p.barriers->begin(1);
        steps.show(*p.barriers);
        steps.expect(*p.barriers);
        copy_box(p.box + steps.places, map, *p.barriers, 0, 0, 0);
        steps.after_copy(p);
        steps.wait(*p.barriers);
    });
}

// The arguments of a map that is right.
struct MapArguments {
    alignas(64) std::byte memory[sizeof(CUtensorMap) + 64];
    std::byte* map = memory;
    cuuint32_t dimensions = 3;
    uintptr_t address = 4096;
    std::vector<cuuint64_t> sizes = {stack_columns, stack_rows, matrices, 1, 1, 1},
                            strides = {ld * 2, ld * 2 * stack_rows, ld * 2 * stack_rows*matrices, 1 << 20,
                                       1 << 20};
    std::vector<cuuint32_t> box = {64, box_rows, 1, 1, 1, 1}, steps = {1, 1, 1, 1, 1, 1};
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

    std::string refusal() const {
        const CUresult result = cuTensorMapEncodeTiled(
            reinterpret_cast<CUtensorMap*>(map), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, dimensions,
            reinterpret_cast<void*>(address), sizes.data(), strides.data(), box.data(), steps.data(),
            CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, fill);
        CHECK((result == CUDA_SUCCESS) == emulation::refused_map.empty());
        return emulation::refused_map;
    }
};

}  // namespace

TEST_CASE("TMA: boxes of a stack of matrices, with zeros beyond a matrix, in the 128-byte swizzle") {
    const Stack stack;
    const CUtensorMap map = boxes_of(stack.view, matrices, box_rows);
    struct Place {
        int64_t column, row, matrix;
    };
    for (const Place first : {Place{0, 0, 0}, {8, 3, 1}, {64, 16, 1}, {16, 12, 2}, {72, 0, 0}, {0, 20, 1}}) {
        INFO(first.column << ", " << first.row << ", " << first.matrix);
        std::vector<bf16> result(size_t(box_rows) * box_columns);
        run(64, [&](Parts p) {
            begin(*p.barriers, 1);
            if (threadIdx.x == 0) {
                p.barriers->arrive_and_expect(box_bytes);
                copy_box(p.box, map, *p.barriers, first.column, first.row, first.matrix);
            }
            p.barriers->wait(0);
            for (int row = int(threadIdx.x); row < box_rows; row += 64)
                for (int column = 0; column < box_columns; ++column)
                    result[size_t(row * box_columns + column)] =
                        p.box[place_in_panel(row, column / piece) + column % piece];
        });
        size_t wrong = 0;
        for (int64_t row = 0; row < box_rows; ++row)
            for (int64_t column = 0; column < box_columns; ++column) {
                const int64_t i = first.row + row, j = first.column + column;
                const float expected =
                    i < stack_rows && j < stack_columns
                        ? float(stack.memory[size_t((first.matrix * stack_rows + i) * ld + j)])
                        : 0.0f;
                wrong += float(result[size_t(row * box_columns + column)]) != expected;
            }
        CHECK(wrong == 0);
    }
}

TEST_CASE("TMA: a box is NaN until it arrives, which may be early or late, and in any order") {
    const Stack stack;
    const CUtensorMap map = boxes_of(stack.view, matrices, box_rows);
    std::set<std::string> seen;
    for (uint64_t order = 1; order <= 30; ++order) {
        std::string arrived;
        run(
            64,
            [&](Parts p) {
                begin(*p.barriers, 1);
                if (threadIdx.x == 0) {
                    p.barriers->arrive_and_expect(2 * box_bytes);
                    copy_box(p.box, map, *p.barriers, 0, 0, 0);
                    copy_box(p.box + box_bytes / 2, map, *p.barriers, 0, 0, 1);
                    CHECK(std::isnan(float(p.box[0])));
                }
                __syncthreads();
                if (threadIdx.x == 32)
                    for (const int box : {0, 1})
                        arrived += std::isnan(float(p.box[box * box_bytes / 2])) ? '0' : '1';
                p.barriers->wait(0);
                CHECK(!std::isnan(float(p.box[0])));
            },
            order);
        seen.insert(arrived);
    }
    CHECK(seen == std::set<std::string>{"00", "01", "10", "11"});
}

TEST_CASE("TMA: phases of a barrier end when all have arrived and all bytes have come, one after the other") {
    const Stack stack;
    const CUtensorMap map = boxes_of(stack.view, matrices, box_rows);
    constexpr int phases = 7;
    for (uint64_t order = 1; order <= 10; ++order) {
        std::vector<float> read;
        run(
            96,
            [&](Parts p) {
                Barrier &full = p.barriers[0], &empty = p.barriers[1];
                if (threadIdx.x == 0) {
                    full.begin(1);
                    empty.begin(2);
                    show_barriers();
                }
                __syncthreads();
                for (int phase = 0; phase < phases; ++phase) {
                    if (threadIdx.x == 0) {
                        if (phase > 0) empty.wait((phase - 1) % 2);
                        full.arrive_and_expect(box_bytes);
                        copy_box(p.box, map, full, 0, phase, 0);
                    } else if (threadIdx.x >= 32) {
                        full.wait(phase % 2);
                        if (threadIdx.x == 32) read.push_back(float(p.box[0]));
                        __syncwarp();
                        if (threadIdx.x % 32 == 0) empty.arrive();
                    }
                }
            },
            order);
        REQUIRE(read.size() == phases);
        for (int phase = 0; phase < phases; ++phase)
            CHECK(read[size_t(phase)] == float(stack.memory[size_t(phase * ld)]));
    }
}

TEST_CASE("TMA: broken rules of copies and barriers are reported") {
    CHECK_NOTHROW(copy_a_box({}));
    const auto says = [](const BoxSteps& steps, const std::string& what) {
        CHECK_THROWS_WITH(copy_a_box(steps), Catch::Contains(what));
    };
    says({.show = [](Barrier&) {}}, "a copy with a barrier that was not shown to the TMA");
    says({.expect = [](Barrier&) {}}, "a copy brings bytes that its barrier does not expect");
    says({.expect = [](Barrier& b) { b.arrive(); }}, "a copy brings bytes that its barrier does not expect");
    says({.expect = [](Barrier& b) { b.arrive_and_expect(box_bytes - 16); }}, "does not expect");
    says({.expect = [](Barrier& b) { b.arrive_and_expect(box_bytes + 16); }},
         "waits in vain for others at a phase of a barrier, which lacks 0 arrivals and 16 bytes");
    says({.expect =
              [](Barrier& b) {
                  b.arrive_and_expect(box_bytes);
                  b.arrive();
              }},
         "more arrivals in a phase than it began with");
    says({.expect = [](Barrier& b) { b.arrive_and_expect((1 << 20) - 1); }},
         "which lacks 0 arrivals and 1046527 bytes");
    says({.expect = [](Barrier& b) { b.arrive_and_expect(1 << 20); }},
         "a phase of a barrier waits for at most 2^20 - 1 bytes");
    says({.wait = [](Barrier&) {}}, "a block ends while a copy of a box is under way");
    says({.wait = [](Barrier& b) { b.wait(2); }}, "the parity of a phase is 0 or 1");
    says({.wait =
              [](Barrier& b) {
                  b.wait(0);
                  b.wait(1);
                  b.arrive();
                  b.wait(0);
              }},
         "which lacks 1 arrivals and 0 bytes");
    says({.places = 64}, "a box is not copied to a multiple of 1024 bytes");
    says({.places = 2 * box_bytes}, "a barrier or box outside of shared memory");
    says({.places = box_bytes}, "a copy to outside of the block's shared memory");
    says({.has_map = false}, "something that is not a map");
    says({.after_copy = [](Parts p) { copy_async<16>(p.box, nullptr, true); }},
         "a copy overwrites another that is under way");
    says({.after_copy = [](Parts p) { copy_async<16>(p.barriers, nullptr, true); }},
         "a copy overwrites a barrier");
    const auto barrier_says = [](const std::function<void(Parts)>& body, const std::string& what) {
        CHECK_THROWS_WITH(run(32, body), Catch::Contains(what));
    };
    barrier_says([](Parts p) { p.barriers->arrive(); }, "a barrier that has not begun");
    barrier_says([](Parts p) { p.barriers->wait(0); }, "a barrier that has not begun");
    barrier_says([](Parts p) { p.barriers->begin(1); }, "a barrier begins twice");
    barrier_says([](Parts p) { p.barriers->begin(0); }, "a barrier has 1 to 2^20 - 1 arrivals");
    barrier_says([](Parts p) { reinterpret_cast<Barrier*>(p.box + 2)->begin(1); },
                 "a barrier is not at a multiple of 8 bytes");
    barrier_says(
        [](Parts p) {
            begin(*p.barriers, 2);
            if (threadIdx.x < 2) p.barriers->arrive_and_expect(1 << 19);
        },
        "a phase of a barrier waits for at most 2^20 - 1 bytes");
    barrier_says([](Parts) { reinterpret_cast<Barrier*>(shared_memory() + block_bytes)->begin(1); },
                 "a barrier or box outside of shared memory");
    barrier_says(
        [](Parts p) {
            begin(*p.barriers, 2);
            if (threadIdx.x == 0) p.barriers->arrive();
            p.barriers->wait(0);
        },
        "waits in vain for others at a phase of a barrier, which lacks 1 arrivals and 0 bytes");
}

TEST_CASE("TMA: maps that the driver would refuse are refused") {
    CHECK(MapArguments().refusal().empty());
    const auto says = [](const std::function<void(MapArguments&)>& change, const std::string& what) {
        MapArguments arguments;
        change(arguments);
        CHECK(arguments.refusal() == what);
    };
    says([](MapArguments& m) { m.map += 32; }, "the map is not at a multiple of 64 bytes");
    says([](MapArguments& m) { m.dimensions = 0; }, "a tensor has 1 to 5 dimensions");
    says([](MapArguments& m) { m.dimensions = 6; }, "a tensor has 1 to 5 dimensions");
    says([](MapArguments& m) { m.address += 8; }, "the address is not a multiple of 16");
    for (const size_t i : {0, 1, 2}) {
        says([i](MapArguments& m) { m.sizes[i] = 0; }, "a size is not in 1 to 2^32");
        says([i](MapArguments& m) { m.sizes[i] = (cuuint64_t(1) << 32) + 1; }, "a size is not in 1 to 2^32");
        says([i](MapArguments& m) { m.box[i] = 0; }, "a size of the box is not in 1 to 256");
        says([i](MapArguments& m) { m.box[i] = 257; }, "a size of the box is not in 1 to 256");
        says([i](MapArguments& m) { m.steps[i] = 9; }, "a step is not in 1 to 8");
    }
    for (const size_t i : {0, 1}) {
        says([i](MapArguments& m) { m.strides[i] += 8; }, "a stride is not a multiple of 16 below 2^40");
        says([i](MapArguments& m) { m.strides[i] = cuuint64_t(1) << 40; },
             "a stride is not a multiple of 16 below 2^40");
    }
    says([](MapArguments& m) { m.strides[0] = 2 * stack_columns - 16; }, "rows overlap");
    says([](MapArguments& m) { m.strides[1] -= 16; }, "matrices overlap");
    says([](MapArguments& m) { m.box[0] = 60; }, "rows of the box are not multiples of 16 bytes");
    says([](MapArguments& m) { m.box[0] = 72; }, "rows of the box are longer than the swizzle");
    says([](MapArguments& m) { m.box[0] = 56; }, "not emulated");
    says([](MapArguments& m) { m.dimensions = 2; }, "not emulated");
    says([](MapArguments& m) { m.steps[1] = 2; }, "not emulated");
    says([](MapArguments& m) { m.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE; }, "not emulated");
    says([](MapArguments& m) { m.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; }, "not emulated");
}

TEST_CASE("TMA: a matrix that the driver refuses is an error that describes it") {
    Stack stack;
    stack.view.ld = ld + 4;
    CHECK_THROWS_WITH(
        boxes_of(stack.view, matrices, box_rows),
        Catch::StartsWith(
            "CUDA: cuTensorMapEncodeTiled refuses 3 matrices of 20x72 with rows 168 bytes apart "
            "in boxes of 16 rows (error 1)"));
    CHECK_THROWS_AS(boxes_of(stack.view, 7, box_rows), LogicError);
}
