// SPDX-License-Identifier: Apache-2.0
// Products of rows that are grouped by expert, of E4M3 codes that have a scale for each row or column of the
// result. This file is not compiled for sm_80. Tiles are copied as in grouped_gemm.cu. An operand that is not
// deep is transposed on its way from shared memory to the tensor cores.
//
// Tensor cores that have products of 8-bit floats add them with as few as 14 bits (sm_89). So they add only
// those of one step of the depth, 64, and all others are added in float32. On other GPUs the codes are
// multiplied in half precision, and added as products of bfloat16 are.
#include "../products/scale_vector.hpp"
#include "../ptx/mma_halves.hpp"
#include "grouped_gemm_8_bit.hpp"
#include "grouped_product.hpp"

namespace coeus::cuda {

namespace {

constexpr int mma_depth = 32, mmas_of_step = product_depth / mma_depth;
/// The rows that a warp has of a tile of the result, in which two warps are side by side.
constexpr int warp_rows = 32, row_tiles = warp_rows / mma_rows;

/// A tile of codes.
template <bool deep, int count>
struct CodeTile : OperandTile<uint8_t, deep, count> {
    /// 16 rows (of the left operand) or columns (of the right one) from `first` on, with a depth of 32 from k
    /// on. For the left operand it is a fragment. For the right one, parts 0 and 2 are the operand of 8
    /// columns, and 1 and 3 that of 8 others: those of index() below.
    __device__ static Fragment load(const uint8_t* tile, int first, int k) {
        const int lane = Lane().lane;
        if constexpr (deep)
            return load_matrices(tile + (first + lane % 16) * CodeTile::pitch + k + lane / 16 * 16);
        // ldmatrix transposes pairs of adjacent bytes: a lane gets two of the depth for each of two columns.
        // Its second matrix has the next two. In the last 8 of 16 of the depth, matrices have changed places,
        // so that the eight rows that are read at once are in different banks.
        const int row = lane % 8, far = row / 4;
        const int depth = row / 2 * 4 + row % 2 + (lane / 8 % 2 ^ far) * 2 + lane / 16 * 16;
        const Fragment pairs = load_matrices<true>(tile + (k + depth) * CodeTile::pitch + first);
        const uint32_t even = lane % 4 < 2 ? 0x6420 : 0x2064, odd = even ^ 0x1111;
        return {{chosen_bytes(pairs.parts[0], pairs.parts[1], even),
                 chosen_bytes(pairs.parts[0], pairs.parts[1], odd),
                 chosen_bytes(pairs.parts[2], pairs.parts[3], even),
                 chosen_bytes(pairs.parts[2], pairs.parts[3], odd)}};
    }
    /// Which of 16 rows or columns is number `i` of the first (eight = 0) or of the other 8 (1).
    __device__ static int index(int i, int eight) { return deep ? eight * 8 + i : 2 * i + eight; }
};

template <int tile_rows, bool left_deep, bool right_deep>
struct CodeTiles {
    using Left = CodeTile<left_deep, tile_rows>;
    using Right = CodeTile<right_deep, product_columns>;
    static constexpr int threads = tile_rows / warp_rows * 2 * warp_size;
    static constexpr int elements = Left::elements + Right::elements;
    static constexpr size_t shared_bytes = 2 * elements;
};

/// A product and the scales of its operands: of the rows of d, and of the columns of all groups.
template <class O>
struct GroupedCodes {
    GroupedProduct<uint8_t, O> product;
    ScaleVector left, right;
};

/// Stores the sums of two times 8 columns of 16 rows, times their scales, or adds them.
template <class Left, class Right, class O>
__device__ void put_scaled(const GroupedCodes<O>& codes, const Work<uint8_t, O>& w, int first_row,
                           int first_column, const Sums (&sums)[2], bool accumulate) {
    constexpr bool adjacent = !Right::is_deep;  // the columns of both sums are next to each other
    const Lane lane;
    COEUS_UNROLL
    for (int row_eight = 0; row_eight < 2; ++row_eight) {
        const int row = first_row + Left::index(lane.row, row_eight);
        if (row >= w.padded) continue;
        const bool is_there = row < w.rows;
        const float of_row = is_there ? codes.left[w.first_row + row] : 0.0f;
        COEUS_UNROLL
        for (int pair = 0; pair < 2; ++pair) {
            const int column =
                first_column + Right::index(lane.column + (adjacent ? pair : 0), adjacent ? 0 : pair);
            if (column >= w.columns) continue;
            const float first = sums[adjacent ? 0 : pair].values[2 * row_eight + (adjacent ? pair : 0)],
                        second = sums[adjacent ? 1 : pair].values[2 * row_eight + (adjacent ? pair : 1)];
            const int64_t of_column = w.first_column + column;
            put_pair(w.d + row * codes.product.d.ld + column,
                     is_there ? first * of_row * codes.right[of_column] : 0.0f,
                     is_there ? second * of_row * codes.right[of_column + 1] : 0.0f, accumulate);
        }
    }
}

template <int tile_rows, bool left_deep, bool right_deep, class O>
__global__ void __launch_bounds__(tile_rows / warp_rows * 2 * warp_size, 1)
    grouped_gemm_8_bit_kernel(GroupedCodes<O> codes) {
    using Tiles = CodeTiles<tile_rows, left_deep, right_deep>;
    using Left = typename Tiles::Left;
    using Right = typename Tiles::Right;
    const GroupedProduct<uint8_t, O>& p = codes.product;
    const Work<uint8_t, O> w = work_of<left_deep, right_deep>(p, tile_rows, product_columns);
    if (w.rows <= 0) return;
    uint8_t* const memory = shared_memory();
    const int warp = int(threadIdx.x) / warp_size, first_row = warp / 2 * warp_rows,
              first_column = warp % 2 * warp_columns;
    const auto start = [&](uint8_t* tiles, int64_t k) {
        Left::template start<Tiles::threads>(tiles, w.left + (left_deep ? k : k * p.a.ld), p.a.ld, w.rows,
                                             w.depth - k);
        Right::template start<Tiles::threads>(tiles + Left::elements, w.right + (right_deep ? k : k * p.b.ld),
                                              p.b.ld, w.columns, w.depth - k);
    };
    Sums sums[row_tiles][column_tiles / 2][2] = {};
    if (w.depth > 0) start(memory, 0);
    int turn = 0;
    for (int64_t depth = 0; depth < w.depth; depth += product_depth, turn ^= 1) {
        wait_for_copies();
        __syncthreads();  // this pair has arrived, and no thread uses the other one any more
        const uint8_t* const left = memory + turn * Tiles::elements;
        const uint8_t* const right = left + Left::elements;
        if (depth + product_depth < w.depth)
            start(memory + (turn ^ 1) * Tiles::elements, depth + product_depth);
        if (first_row >= w.rows || first_column >= w.columns) continue;
        Fragment a[row_tiles][mmas_of_step];
        COEUS_UNROLL
        for (int r = 0; r < row_tiles; ++r) {
            COEUS_UNROLL
            for (int k = 0; k < mmas_of_step; ++k)
                a[r][k] = Left::load(left, first_row + r * mma_rows, k * mma_depth);
        }
        COEUS_UNROLL
        for (int c = 0; c < column_tiles / 2; ++c) {
            Fragment b[mmas_of_step];
            COEUS_UNROLL
            for (int k = 0; k < mmas_of_step; ++k)
                b[k] = Right::load(right, first_column + c * 16, k * mma_depth);
            COEUS_UNROLL
            for (int r = 0; r < row_tiles; ++r) {
                COEUS_UNROLL
                for (int column_eight = 0; column_eight < 2; ++column_eight) {
                    Sums of_step = {};
                    COEUS_UNROLL
                    for (int k = 0; k < mmas_of_step; ++k) {
                        const uint32_t first = b[k].parts[column_eight],
                                       second = b[k].parts[column_eight + 2];
                        if (mma_has_8_bits())
                            multiply_add_e4m3(of_step, a[r][k], first, second);
                        else
                            multiply_add_as_halves(sums[r][c][column_eight], a[r][k], first, second);
                    }
                    if (!mma_has_8_bits()) continue;
                    COEUS_UNROLL
                    for (int i = 0; i < 4; ++i) sums[r][c][column_eight].values[i] += of_step.values[i];
                }
            }
        }
    }
    COEUS_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
        COEUS_UNROLL
        for (int c = 0; c < column_tiles / 2; ++c)
            put_scaled<Left, Right>(codes, w, first_row + r * mma_rows, first_column + c * 16, sums[r][c],
                                    !left_deep && p.accumulate);
    }
}

template <bool left_deep, bool right_deep, class O>
void multiply(Exec& exec, const char* name, Tensor d, Tensor a, Tensor b, const Groups& groups,
              bool accumulate) {
    const auto rows_of_codes = [](const Tensor& t) {
        return Rows<const uint8_t>{static_cast<const uint8_t*>(t.data), t.ld};
    };
    const GroupedCodes<O> codes = {.product = {.d = rows_of<O>(d),
                                               .a = rows_of_codes(a),
                                               .b = rows_of_codes(b),
                                               .groups = device_groups(groups),
                                               .rows = left_deep ? 0 : a.cols(),
                                               .columns = d.cols(),
                                               .depth = left_deep ? a.cols() : 0,
                                               .accumulate = accumulate},
                                   .left = scale_vector(a),
                                   .right = scale_vector(b)};
    const auto with_tiles_of = [&]<int tile_rows>(std::integral_constant<int, tile_rows>) {
        using Tiles = CodeTiles<tile_rows, left_deep, right_deep>;
        launch(exec, name,
               {tiles<left_deep>(codes.product, a.rows(), tile_rows, product_columns), Tiles::threads,
                Tiles::shared_bytes},
               grouped_gemm_8_bit_kernel<tile_rows, left_deep, right_deep, O>, codes);
    };
    has_few_rows<left_deep>(codes.product, a.rows()) ? with_tiles_of(std::integral_constant<int, 64>())
                                                     : with_tiles_of(std::integral_constant<int, 128>());
}

}  // namespace

void multiply_grouped_codes(Exec& exec, Tensor d, Tensor a, Operand b, const Groups& groups) {
    if (d.cols() == 0) return;
    dispatch(d.dtype, [&]<class O>(O) {
        b.is_transposed ? multiply<true, true, O>(exec, "grouped_gemm_8_bit", d, a, b.tensor, groups, false)
                        : multiply<true, false, O>(exec, "grouped_gemm_8_bit", d, a, b.tensor, groups, false);
    });
}

void multiply_grouped_codes(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups) {
    if (d.cols() == 0) return;
    multiply<false, false, float>(exec, "grouped_gemm_8_bit_weights", d, a, b, groups, bool(c));
}

}  // namespace coeus::cuda
