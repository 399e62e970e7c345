// SPDX-License-Identifier: Apache-2.0
// Matrix products of rows that are grouped by expert, on any GPU. On tensor cores (bf16, in pieces of 16
// bytes) the tiles of the operands are loaded in pairs. Two pairs are in shared memory, so that one is loaded
// while the other is used.
#include "../cuda.hpp"
#include "grouped_choice.hpp"
#include "grouped_gemm_wgmma.hpp"

namespace coeus::cuda {

namespace {

// --- any operands ---

constexpr int simt_side = 64, simt_depth = 16, simt_threads = 256, simt_pitch = simt_side + 1;
constexpr int simt_step = 16, simt_own = simt_side / simt_step;  // a thread has 4 x 4 sums, 16 apart
constexpr int simt_elements = simt_depth * simt_pitch;

/// Copies a part of an operand to shared memory, where the depth runs across the rows, with zeros beyond its
/// `count` rows (or columns) and its depth. Neighbouring threads read neighbouring elements.
template <bool deep, class T>
__device__ void load_part(float* to, const T* from, int64_t ld, int64_t count, int64_t depth) {
    for (int at = int(threadIdx.x); at < simt_side * simt_depth; at += simt_threads) {
        const int i = deep ? at / simt_depth : at % simt_side, k = deep ? at % simt_depth : at / simt_side;
        to[k * simt_pitch + i] =
            i < count && k < depth ? load(deep ? from[i * ld + k] : from[k * ld + i]) : 0.0f;
    }
}

template <bool left_deep, bool right_deep, class T, class O>
__global__ void grouped_gemm_kernel(GroupedProduct<T, O> p) {
    const Work<T, O> w = work_of<left_deep, right_deep>(p, simt_side, simt_side);
    if (w.rows <= 0) return;
    float* const left = reinterpret_cast<float*>(shared_memory());
    float* const right = left + simt_elements;
    const int row = int(threadIdx.x) / simt_step, column = int(threadIdx.x) % simt_step;
    float sums[simt_own][simt_own] = {};
    for (int64_t k = 0; k < w.depth; k += simt_depth) {
        load_part<left_deep>(left, w.left + (left_deep ? k : k * p.a.ld), p.a.ld, w.rows, w.depth - k);
        load_part<right_deep>(right, w.right + (right_deep ? k : k * p.b.ld), p.b.ld, w.columns, w.depth - k);
        __syncthreads();
        for (int i = 0; i < simt_depth; ++i) {
            COEUS_UNROLL
            for (int r = 0; r < simt_own; ++r) {
                const float x = left[i * simt_pitch + row + r * simt_step];
                COEUS_UNROLL
                for (int c = 0; c < simt_own; ++c)
                    sums[r][c] += x * right[i * simt_pitch + column + c * simt_step];
            }
        }
        __syncthreads();  // before the next parts are written
    }
    for (int r = 0; r < simt_own; ++r)
        for (int c = 0; c < simt_own; ++c) {
            const int i = row + r * simt_step, j = column + c * simt_step;
            if (i >= w.padded || j >= w.columns) continue;
            O& to = w.d[i * p.d.ld + j];
            if constexpr (left_deep)
                to = store<O>(i < w.rows ? sums[r][c] : 0.0f);
            else
                to = store<O>(p.accumulate ? load(to) + sums[r][c] : sums[r][c]);
        }
}

// --- tensor cores ---

/// Two by two warps share a tile of the result.
constexpr int product_threads = 4 * warp_size;

/// A tile of the left operand, or of the right one.
template <bool left, bool deep, int count>
struct Tile : OperandTile<bf16, deep, count> {
    /// The 16 x 16 elements from (first, k) on, as a fragment of the left operand or as two of the right one.
    __device__ static Fragment load(const bf16* tile, int first, int k) {
        const int lane = Lane().lane;
        const int row = left == deep ? lane % 16 : lane % 8 + lane / 16 * 8;
        const int column = (left == deep ? lane / 16 : lane / 8 % 2) * piece;
        return load_matrices<!deep>(tile + ((deep ? first : k) + row) * Tile::pitch + (deep ? k : first) +
                                    column);
    }
};

template <int tile_rows, bool left_deep, bool right_deep>
struct ProductTiles {
    using Left = Tile<true, left_deep, tile_rows>;
    using Right = Tile<false, right_deep, product_columns>;
    static constexpr int elements = Left::elements + Right::elements;
    static constexpr size_t shared_bytes = 2 * elements * sizeof(bf16);
};

template <int tile_rows, bool left_deep, bool right_deep, class O>
__global__ void __launch_bounds__(product_threads) grouped_gemm_mma_kernel(GroupedProduct<bf16, O> p) {
    using Tiles = ProductTiles<tile_rows, left_deep, right_deep>;
    using Left = typename Tiles::Left;
    using Right = typename Tiles::Right;
    constexpr int warp_rows = tile_rows / 2, row_tiles = warp_rows / mma_rows;
    const Work<bf16, O> w = work_of<left_deep, right_deep>(p, tile_rows, product_columns);
    if (w.rows <= 0) return;
    bf16* const memory = reinterpret_cast<bf16*>(shared_memory());
    const int warp = int(threadIdx.x) / warp_size, first_row = warp / 2 * warp_rows,
              first_column = warp % 2 * warp_columns;
    const auto start = [&](bf16* tiles, int64_t k) {
        Left::template start<product_threads>(tiles, w.left + (left_deep ? k : k * p.a.ld), p.a.ld, w.rows,
                                              w.depth - k);
        Right::template start<product_threads>(
            tiles + Left::elements, w.right + (right_deep ? k : k * p.b.ld), p.b.ld, w.columns, w.depth - k);
    };
    Sums sums[row_tiles][column_tiles] = {};
    if (w.depth > 0) start(memory, 0);
    int turn = 0;
    for (int64_t depth = 0; depth < w.depth; depth += product_depth, turn ^= 1) {
        wait_for_copies();
        __syncthreads();  // this pair has arrived, and no thread uses the other one any more
        const bf16* const left = memory + turn * Tiles::elements;
        const bf16* const right = left + Left::elements;
        if (depth + product_depth < w.depth)
            start(memory + (turn ^ 1) * Tiles::elements, depth + product_depth);
        if (first_row >= w.rows || first_column >= w.columns) continue;
        COEUS_UNROLL
        for (int k = 0; k < product_depth; k += 16) {
            Fragment a[row_tiles];
            COEUS_UNROLL
            for (int r = 0; r < row_tiles; ++r) a[r] = Left::load(left, first_row + r * mma_rows, k);
            COEUS_UNROLL
            for (int c = 0; c < column_tiles; c += 2) {
                const Fragment b = Right::load(right, first_column + c * 8, k);
                COEUS_UNROLL
                for (int r = 0; r < row_tiles; ++r) {
                    multiply_add(sums[r][c], a[r], b.parts[0], b.parts[1]);
                    multiply_add(sums[r][c + 1], a[r], b.parts[2], b.parts[3]);
                }
            }
        }
    }
    COEUS_UNROLL
    for (int r = 0; r < row_tiles; ++r)
        put_sums(w, p.d.ld, first_row + r * mma_rows, first_column, sums[r], !left_deep && p.accumulate);
}

template <int tile_rows, bool left_deep, bool right_deep, class O>
void multiply_on_tensor_cores(Exec& exec, const char* name, const GroupedProduct<bf16, O>& p, int64_t rows) {
    launch(exec, name,
           {tiles<left_deep>(p, rows, tile_rows, product_columns), product_threads,
            ProductTiles<tile_rows, left_deep, right_deep>::shared_bytes},
           grouped_gemm_mma_kernel<tile_rows, left_deep, right_deep, O>, p);
}

/// True if there are rows of whole pieces, which can be copied by cp.async and by TMA.
bool tensor_cores_fit(std::initializer_list<Tensor> operands) {
    return in_pieces(operands) && std::all_of(operands.begin(), operands.end(), [](const Tensor& t) {
               return t.rows() > 0 && t.cols() % piece == 0;
           });
}

template <bool left_deep, bool right_deep, class T, class O>
void multiply(Exec& exec, const char* name, Tensor d, Tensor a, Tensor b, const Groups& groups,
              bool accumulate) {
    const GroupedProduct<T, O> p = {.d = rows_of<O>(d),
                                    .a = rows_of<const T>(a),
                                    .b = rows_of<const T>(b),
                                    .groups = device_groups(groups),
                                    .rows = left_deep ? 0 : a.cols(),
                                    .columns = d.cols(),
                                    .depth = left_deep ? a.cols() : 0,
                                    .accumulate = accumulate};
    const int64_t buffer_rows = a.rows();
    if constexpr (std::is_same_v<T, bf16>) {
        const bool few_rows = has_few_rows<left_deep>(p, buffer_rows);
        if (tensor_cores_fit({d, a, b})) {
            std::optional<GroupedChoice>& choice = state_of(exec).grouped_choice;
            if (!choice) choice = grouped_choice(*exec.device, state_of(exec).product_options.experts);
            if (few_rows && !choice->few_rows)
                return multiply_on_tensor_cores<64, left_deep, right_deep>(exec, name, p, buffer_rows);
            switch (choice->kernel) {
                case ExpertsKernel::tma: return multiply_by_tma<left_deep, right_deep>(exec, p, a, b);
                case ExpertsKernel::wgmma:
                    return multiply_by_wgmma<left_deep, right_deep>(exec, p, buffer_rows);
                default:
                    return multiply_on_tensor_cores<128, left_deep, right_deep>(exec, name, p, buffer_rows);
            }
        }
    }
    launch(exec, name,
           {tiles<left_deep>(p, buffer_rows, simt_side, simt_side), simt_threads,
            2 * simt_elements * sizeof(float)},
           grouped_gemm_kernel<left_deep, right_deep, T, O>, p);
}

}  // namespace

void Cuda::grouped_gemm(Exec& exec, Tensor d, Tensor a, Operand b, const Groups& groups) {
    const int64_t number = groups.number(), columns = d.cols(), depth = a.cols();
    require(a.rows() == d.rows() && b.tensor.rows() == number * (b.is_transposed ? columns : depth) &&
                b.tensor.cols() == (b.is_transposed ? depth : columns) && a.dtype == b.tensor.dtype,
            "grouped_gemm: shapes or types do not fit");
    if (columns == 0) return;
    const auto multiply_to = [&]<class T, class O>(T, O) {
        b.is_transposed ? multiply<true, true, T, O>(exec, "grouped_gemm", d, a, b.tensor, groups, false)
                        : multiply<true, false, T, O>(exec, "grouped_gemm", d, a, b.tensor, groups, false);
    };
    dispatch(a.dtype,
             [&]<class T>(T) { d.dtype == Dtype::f32 ? multiply_to(T(), float()) : multiply_to(T(), T()); });
}

void Cuda::grouped_gemm_weights(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups) {
    require(a.rows() == b.rows() && d.rows() == groups.number() * a.cols() && d.cols() == b.cols() &&
                a.dtype == b.dtype && (d.dtype == a.dtype || d.dtype == acc_of(a.dtype)) &&
                (!c || c.data == d.data),
            "grouped_gemm_weights: shapes or types do not fit");
    if (d.cols() == 0) return;
    const auto multiply_to = [&]<class T, class O>(T, O) {
        multiply<false, false, T, O>(exec, "grouped_gemm_weights", d, a, b, groups, bool(c));
    };
    dispatch(a.dtype,
             [&]<class T>(T) { d.dtype == Dtype::f32 ? multiply_to(T(), float()) : multiply_to(T(), T()); });
}

}  // namespace coeus::cuda
