// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit floats: by cuBLASLt if the GPU has such products (scaled_product.hpp), otherwise of the
// decoded operands. Products of experts' rows are by a kernel of ours (grouped_gemm_8_bit.hpp), or of decoded
// operands as well. An 8-bit float is a bfloat16 as well, also after multiplication with a power of two, so
// that the decoded operands are exact; the scale of a whole operand becomes a factor of the product.
#include "../../rows/matrix.hpp"
#include "../../scales.hpp"
#include "../cuda.hpp"
#include "../experts/grouped_gemm_8_bit.hpp"
#include "../launch.hpp"
#include "../libraries/cublaslt.hpp"
#include "../quantization/quantization.hpp"
#include "../rows/team.hpp"
#include "../workspace.hpp"
#include "scale_vector.hpp"

namespace coeus::cuda {

namespace {

/// factors = the product of both scales, of which each may be null, and that of the addend.
__global__ void factors_kernel(float* factors, const float* scale_a, const float* scale_b, float of_addend) {
    factors[0] = (scale_a ? *scale_a : 1) * (scale_b ? *scale_b : 1);
    factors[1] = of_addend;
}

/// Side of a tile in bytes, and bytes from one of its rows to the next, so that rows are in different banks.
constexpr int tile_side = 64, transpose_pitch = tile_side + 4, word = 4;

/// to[cols, rows] = the transpose of from[rows, cols], of bytes. A thread moves 16 bytes each time.
__global__ void transpose_kernel(Rows<uint8_t> to, Rows<const uint8_t> from, int64_t rows, int64_t cols) {
    constexpr int count = 16, threads_of_row = tile_side / count;
    uint8_t* const tile = shared_memory();
    const int64_t first_row = int64_t(blockIdx.x) * tile_side, first_col = int64_t(blockIdx.y) * tile_side;
    const int i = int(threadIdx.x) / threads_of_row, j = int(threadIdx.x) % threads_of_row * count;
    if (first_row + i < rows && first_col + j < cols) {
        const auto bytes = load_pack<count>(from[first_row + i] + first_col + j);
        COEUS_UNROLL
        for (int k = 0; k < count; k += word) {
            Pack<uint8_t, word> part;
            COEUS_UNROLL
            for (int b = 0; b < word; ++b) part.values[b] = bytes.values[k + b];
            store_pack<word>(tile + i * transpose_pitch + j + k, part);
        }
    }
    __syncthreads();
    if (first_col + i < cols && first_row + j < rows) {
        Pack<uint8_t, count> bytes;
        COEUS_UNROLL
        for (int k = 0; k < count; ++k) bytes.values[k] = tile[(j + k) * transpose_pitch + i];
        store_pack<count>(to[first_col + i] + first_row + j, bytes);
    }
}

/// A vector of scales, or of one scale (step 0).
__global__ void vector_kernel(float* to, const float* from, int step, int64_t count) {
    grid_team().each(count, [=](int64_t i) { to[i] = from ? from[i * step] : 1; });
}

/// The E8M0 code of a power of two. What is not finite becomes NaN.
__device__ uint8_t e8m0_code(float power) {
    return uint8_t(std::bit_cast<uint32_t>(power) >> 23);
}

/// The scales of an operand of `rows` rows along what is not summed.
struct BlockScales {
    const void* scales;  ///< null: 1
    ScaleGroups groups;
    int64_t ld, rows, blocks;

    __device__ uint8_t at(int64_t row, int64_t block) const {
        const auto* const numbers = static_cast<const float*>(scales);
        const auto* const codes = static_cast<const uint8_t*>(scales);
        switch (groups) {
            case ScaleGroups::one: return e8m0_code(numbers[0]);
            case ScaleGroups::rows:
            case ScaleGroups::cols: return e8m0_code(numbers[row]);
            case ScaleGroups::rows32: return codes[row * (ld / scale_block) + block];
            case ScaleGroups::cols32: return codes[block * ld + row];
            case ScaleGroups::none: break;
        }
        return e8m0_code(1);
    }
};

/// Writes scales in cuBLASLt's layout. Within a tile, rows 32 apart are adjacent, with their four blocks.
__global__ void lay_out_kernel(uint8_t* to, BlockScales scales, int64_t count) {
    constexpr int64_t adjacent = 32, quarters = tile_rows / adjacent, of_row = quarters * tile_blocks;
    const int64_t tiles_across = (scales.blocks + tile_blocks - 1) / tile_blocks;
    grid_team().each(count, [=](int64_t i) {
        const int64_t tile = i / tile_bytes, in_tile = i % tile_bytes;
        const int64_t row = tile / tiles_across * tile_rows + in_tile % of_row / tile_blocks * adjacent +
                            in_tile / of_row,
                      block = tile % tiles_across * tile_blocks + in_tile % tile_blocks;
        to[i] = row < scales.rows && block < scales.blocks ? scales.at(row, block) : uint8_t(0);
    });
}

/// to = from times the scales of its row and column, or divided by them. Scales are powers of two.
template <class T>
__global__ void scale_kernel(Rows<T> to, Rows<const T> from, int64_t width, ScaleVector of_rows,
                             ScaleVector of_columns, bool inverse) {
    const int64_t row = blockIdx.x;
    const float of_row = of_rows[row];
    BlockTeam(shared_memory())
        .map_at(
            width, to[row],
            [=](int64_t j, float value) {
                return inverse ? value / of_row / of_columns[j] : value * of_row * of_columns[j];
            },
            from[row]);
}

/// A call of scaled_gemm. The library's workspace is allocated first: it must begin at a multiple of 256
/// bytes, which the arena promises for its beginning only.
struct ScaledGemm {
    Exec& exec;
    Tensor d;
    Operand a, b;
    Tensor c;
    bool fast;
    Tensor library_workspace = exec.workspace.alloc(Dtype::u8, {workspace::cublaslt});

    int64_t depth() const { return depth_of(a); }

    Tensor bytes(int64_t count) const { return exec.workspace.alloc(Dtype::u8, {count}); }

    ProductOperands operands(const Operand& first, const Operand& second) const {
        return {d, first, second, c ? c : d, library_workspace, bool(c)};
    }

    Operand decoded(const Operand& operand) const {
        const Tensor values =
            exec.workspace.alloc(Dtype::bf16, {operand.tensor.rows(), operand.tensor.cols()});
        decode_all(exec, values, operand.tensor, true, {});
        return {values, operand.is_transposed};
    }
    void by_decoding() const {
        const Operand first = decoded(a), second = decoded(b);
        auto* const factors = exec.workspace.alloc(Dtype::f32, {2}).as<float>();
        ProductOperands o = operands(first, second);
        const bool one_a = a.tensor.groups == ScaleGroups::one, one_b = b.tensor.groups == ScaleGroups::one;
        if (one_a || one_b) {
            launch(exec, "factors", {1, 32}, factors_kernel, factors, one_a ? numbers_of(a.tensor) : nullptr,
                   one_b ? numbers_of(b.tensor) : nullptr, c ? 1.0f : 0.0f);
            o.scaling = Scaling::factor;
            o.scale_a = factors;
        }
        multiply(exec, o);
    }

    Operand copied(const Operand& operand) const {
        const Tensor& from = operand.tensor;
        const int64_t rows = from.rows(), cols = from.cols();
        const Tensor to = exec.workspace.alloc(from.dtype, {cols, rows});
        launch(exec, "transpose",
               {dim3(blocks_for(div_ceil(rows, tile_side)), unsigned(div_ceil(cols, tile_side))), 256,
                size_t(tile_side * transpose_pitch)},
               transpose_kernel, Rows<uint8_t>{static_cast<uint8_t*>(to.data), to.ld},
               Rows<const uint8_t>{static_cast<const uint8_t*>(from.data), from.ld}, rows, cols);
        return {to, !operand.is_transposed};
    }

    /// The scales of an operand with `rows` rows along what is not summed.
    const float* as_vector(const Tensor& t, int64_t rows) const {
        if (!needs_vector(t)) return numbers_of(t);
        auto* const to = exec.workspace.alloc(Dtype::f32, {rows}).as<float>();
        launch(exec, "scale_vector", {blocks_for(div_ceil(rows, 256))}, vector_kernel, to, numbers_of(t),
               scale_vector(t).step, rows);
        return to;
    }
    const void* laid_out(const Tensor& t, int64_t rows) const {
        const int64_t count = laid_out_scales(rows, depth());
        void* const to = bytes(count).data;
        launch(exec, "lay_out_scales", {blocks_for(div_ceil(count, 256))}, lay_out_kernel,
               static_cast<uint8_t*>(to),
               BlockScales{t.scale, t.groups, t.ld, rows, div_ceil(depth(), scale_block)}, count);
        return to;
    }

    void scale(Tensor from, bool inverse) const {
        dispatch(d.dtype, [&]<class T>(T) {
            launch(exec, "scale", {blocks_for(d.rows()), threads_for(d.cols())}, scale_kernel<T>,
                   rows_of<T>(d), rows_of<const T>(from), d.cols(), scale_vector(a.tensor),
                   scale_vector(b.tensor), inverse);
        });
    }
    /// Scales are powers of two, so d = (sums + c / scales) scales is rounded once, as sums scales + c.
    void by_passes(ProductOperands o) const {
        if (c) scale(c, true);
        o.c = d;
        o.scaling = Scaling::whole;
        o.scale_a = o.scale_b = nullptr;
        multiply(exec, o);
        scale(d, false);
    }

    void run() const {
        const ScaledProduct product = scaled_product(exec, d, a, b, c);
        if (product.by == ScaledBy::decoding) return by_decoding();
        const Operand first = product.copies_a ? copied(a) : a, second = product.copies_b ? copied(b) : b;
        ProductOperands o = operands(first, second);
        o.fast = fast;
        switch (product.by) {
            case ScaledBy::library:
                o.scaling = Scaling::whole;
                o.scale_a = numbers_of(a.tensor);
                o.scale_b = numbers_of(b.tensor);
                return multiply(exec, o);
            case ScaledBy::blocks:
                o.scaling = Scaling::blocks;
                o.scale_a = laid_out(a.tensor, d.rows());
                o.scale_b = laid_out(b.tensor, d.cols());
                return multiply(exec, o);
            case ScaledBy::vectors: {
                constexpr size_t first_version = 120900;
                o.scaling = Scaling::vectors;
                o.scale_a = as_vector(a.tensor, d.rows());
                o.scale_b = as_vector(b.tensor, d.cols());
                if (cublasLtGetVersion() >= first_version && multiply_if_possible(exec, o)) return;
                return by_passes(o);
            }
            default: return by_passes(o);
        }
    }
};

bool has_scales_along(const Tensor& t, bool rows) {
    return has_one_scale(t) || t.groups == (rows ? ScaleGroups::rows : ScaleGroups::cols) ||
           t.groups == (rows ? ScaleGroups::rows32 : ScaleGroups::cols32);
}

}  // namespace

void Cuda::scaled_gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c, bool fast) {
    const int64_t m = d.rows(), n = d.cols(), k = depth_of(a);
    require((a.is_transposed ? a.tensor.cols() : a.tensor.rows()) == m &&
                (b.is_transposed ? b.tensor.rows() : b.tensor.cols()) == n &&
                (b.is_transposed ? b.tensor.cols() : b.tensor.rows()) == k &&
                (!c || (c.rows() == m && c.cols() == n && c.dtype == d.dtype)),
            "scaled_gemm: the operands' shapes do not fit");
    require(is_8_bit_float(a.tensor.dtype) && is_8_bit_float(b.tensor.dtype),
            "scaled_gemm: operands must be 8-bit floats");
    require(has_scales_along(a.tensor, !a.is_transposed) && has_scales_along(b.tensor, b.is_transposed),
            "scaled_gemm: an operand has scales along what is summed");
    if (m == 0 || n == 0) return;
    if (k == 0) {
        if (!c) return zero(exec, d);
        if (c.data != d.data) cast(exec, d, c);
        return;
    }
    const Scope scope(exec.workspace);
    ScaledGemm{exec, d, a, b, c, fast}.run();
}

void Cuda::scaled_grouped_gemm(Exec& exec, Tensor d, Tensor a, Operand b, const Groups& groups, bool) {
    if (multiplies_codes(exec, d, {a, b.tensor})) return multiply_grouped_codes(exec, d, a, b, groups);
    const Scope scope(exec.workspace);
    const int64_t number = groups.number(), rows = b.tensor.rows(), columns = b.tensor.cols();
    const Tensor rows_values = exec.workspace.alloc(Dtype::bf16, {a.rows(), a.cols()}),
                 matrices = exec.workspace.alloc(Dtype::bf16, {rows, columns});
    decode_all(exec, rows_values, a, false, groups);
    decode_all(exec, matrices, b.tensor.reshape({number, rows / number, columns}), false, {});
    grouped_gemm(exec, d, rows_values, {matrices, b.is_transposed}, groups);
}

void Cuda::scaled_grouped_gemm_weights(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor c,
                                       const Groups& groups) {
    if (multiplies_codes(exec, d, {a, b})) return multiply_grouped_codes(exec, d, a, b, c, groups);
    const Scope scope(exec.workspace);
    const Tensor a_values = exec.workspace.alloc(Dtype::bf16, {a.rows(), a.cols()}),
                 b_values = exec.workspace.alloc(Dtype::bf16, {b.rows(), b.cols()});
    decode_all(exec, a_values, a, false, groups);
    decode_all(exec, b_values, b, false, groups);
    grouped_gemm_weights(exec, d, a_values, b_values, c, groups);
}

}  // namespace coeus::cuda
