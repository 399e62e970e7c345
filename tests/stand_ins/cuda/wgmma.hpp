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
// A warp may have several sets of sums under way. It gets a set when all of its products are done.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace coeus::emulation {

/// The address of a byte of the block's shared memory. The first one is at a multiple of 128, but not of
/// 1024.
unsigned shared_address(const void* memory);

/// Operands of a product: descriptors, or for a the lane's registers. `deep`: K-major; registers are.
struct WarpOperands {
    const uint32_t* registers = nullptr;
    uint64_t a = 0, b = 0;
    bool a_deep = true, b_deep = true;
    bool adds = true;  ///< to the sums, which are not read otherwise
};
/// wgmma.fence, .mma_async (m64k16 of bf16 with so many columns of float sums, of which each thread has half
/// as many as there are columns), .commit_group and .wait_group. All lanes of a warp make the same calls.
void begin_products();
void start_product(float* sums, int columns, const WarpOperands& operands);
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
    static constexpr int rows = 16, most_columns = 256, depth = 16;
    /// Sums of products under way.
    struct SumSet {
        std::array<float*, 32> of_lanes = {};  ///< where the lanes want them
        int columns = 0, products = 0;
        float values[rows][most_columns] = {};
    };
    struct Product {
        WarpOperands operands;
        std::array<std::array<uint32_t, 4>, 32> registers;  ///< of the lanes, if a is there
        float* sums;                                        ///< of lane 0: which set
        int group;
    };
    std::vector<Product> under_way;
    std::map<const float*, SumSet> sums;  ///< by lane 0's
    int groups = 0;                       ///< that have ended
    size_t count = 0;
    bool has_begun = false;
};

/// Those of the running block.
SharedPieces& shared_pieces();
WarpProducts& warp_products(size_t warp);

}  // namespace coeus::emulation
