// SPDX-License-Identifier: Apache-2.0
// The PTX instructions that src/kernels/cuda/ptx/wgmma.hpp uses, for the CPU: operands in shared memory by
// the PTX ISA's matrix descriptors, and products that are done as late as allowed. Sums are NaN until they
// are waited for. These are errors:
// - an operand outside of the block's memory, not at a multiple of 1024 bytes, or not in the 128-byte
//   swizzle;
// - an operand that has bytes which no asynchronous copy has brought, or which the thread that copied them
//   has not shown to the products (fence.proxy.async);
// - a copy over an operand of a product that is not waited for, or over bytes of another copy under way;
// - products without the fence before them, of which a warpgroup's warps start different numbers, or that are
//   under way when a thread ends.
// A warp has one set of sums under way at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace coeus::emulation {

/// The address of a byte of the block's shared memory. The first one is at a multiple of 128, but not of
/// 1024.
unsigned shared_address(const void* memory);

/// wgmma.fence, .mma_async (m64n256k16 of bf16 with float sums, 128 for each thread), .commit_group and
/// .wait_group. All lanes of a warp make the same calls. `deep`: K-major.
void begin_products();
void start_product(float* sums, uint64_t a, uint64_t b, bool a_deep, bool b_deep);
void end_products();
void wait_for_products(int groups);

/// cp.async.commit_group, cp.async.wait_group, and fence.proxy.async for what this thread has copied.
void end_copies();
void wait_for_copies(int groups);
void show_to_products();

/// What products may read of a block's shared memory, in pieces of 16 bytes.
class SharedPieces {
public:
    explicit SharedPieces(size_t bytes) : pieces_((bytes + 15) / 16) {}

    /// Each returns what is wrong, or null.
    const char* copy_starts(size_t offset, size_t bytes, unsigned thread);
    void copy_arrives(size_t offset, size_t bytes);
    /// Products may read at once what TMA has brought.
    void box_arrives(size_t offset, size_t bytes);
    void show(unsigned thread);
    const char* product_starts(size_t piece);
    void product_ends(size_t piece);

private:
    enum class State : uint8_t { unknown, arrived, shown };  // of what the last copy has brought
    struct Piece {
        State state = State::unknown;
        uint8_t under_way = 0;  // words of 4 bytes to which something is copied, as bits
        unsigned thread = 0, products = 0;
    };
    std::vector<Piece> pieces_;
    std::vector<std::vector<size_t>> arrived_;  // of each thread: the pieces that it has not shown
};

/// The products of a warp.
struct WarpProducts {
    static constexpr int rows = 16, columns = 256, depth = 16, sums_of_lane = 128;
    struct Product {
        uint64_t a, b;
        bool a_deep, b_deep;
        int group;
    };
    std::vector<Product> under_way;
    std::array<float*, 32> sums = {};  ///< where the lanes want them
    float values[rows][columns] = {};
    int groups = 0;  ///< that have ended
    size_t count = 0;
    bool has_begun = false;
};

/// Those of the running block.
SharedPieces& shared_pieces();
WarpProducts& warp_products(size_t warp);

}  // namespace coeus::emulation
