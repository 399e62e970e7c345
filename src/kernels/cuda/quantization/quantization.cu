// SPDX-License-Identifier: Apache-2.0
// Matrices in 8-bit floats: scales, conversion, and back. The formulas are those of the CPU (scales.hpp), so
// the bytes are the same. Maxima are integers, which atomics can take in any order.
#include "../../rows/matrix.hpp"
#include "../../scales.hpp"
#include "../cuda.hpp"
#include "../experts/groups.hpp"
#include "../launch.hpp"
#include "../ptx/mma.hpp"
#include "../rows/team.hpp"
#include "../workspace.hpp"
#include "quantization.hpp"
#include "rounded.hpp"

namespace coeus::cuda {

namespace {

/// Groups of rows whose columns have scales of their own: those of experts with their padding, or the
/// matrices of x[G,R,C].
struct RowGroups {
    DeviceGroups experts;         ///< without any, there are matrices
    int64_t number, matrix_rows;  ///< matrices, and rows of each

    /// The place of a row, with rows of experts' padding.
    __device__ PlaceInGroup of_row(int64_t row) const {
        if (experts.number > 0) return experts.of_row(row);
        const int64_t group = row / matrix_rows, rows = matrix_rows - row % matrix_rows;
        return {group, row, rows, rows};
    }
    /// The place of a strip: each group is divided into strips of `rows` rows. All lanes of a warp make the
    /// same call.
    __device__ PlaceInGroup of_strip(int64_t strip, int rows) const {
        if (experts.number > 0) return experts.of_tile(strip, rows);
        const int64_t of_matrix = (matrix_rows + rows - 1) / rows, first = strip % of_matrix * rows,
                      rest = matrix_rows - first;
        return {strip / of_matrix, strip / of_matrix * matrix_rows + first, rest, rest};
    }
};

RowGroups groups_of(const Tensor& x, const Groups& experts) {
    const int64_t matrices = x.shape.rank == 3 ? x.shape[0] : 1;
    return {experts ? device_groups(experts) : DeviceGroups{}, matrices, matrices ? x.rows() / matrices : 0};
}

/// Kernels that go down the columns have 32 rows in a block, and 4 columns in a thread.
constexpr int strip_rows = 32, own_columns = 4;
static_assert(strip_rows == scale_block && strip_rows == group_rows);

Grid grid_of_strips(const Tensor& x, const Groups& experts) {
    const RowGroups groups = groups_of(x, experts);
    const int64_t strips = experts ? most_tiles(x.rows(), experts.number(), strip_rows)
                                   : groups.number * div_ceil(groups.matrix_rows, strip_rows);
    const int64_t threads = div_ceil(x.cols(), own_columns);
    return {dim3(blocks_for(strips), unsigned(div_ceil(threads, 256))), threads_for(threads)};
}
/// The first of a thread's columns.
__device__ int64_t first_own_column() {
    return (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * own_columns;
}

/// `count` adjacent elements. Those from `rest` on are zero, and not read.
template <int count, class T>
__device__ Pack<T, count> load_adjacent(const T* from, int64_t rest) {
    if (rest >= count && is_aligned<count>(from)) return load_pack<count>(from);
    Pack<T, count> pack = {};
    COEUS_UNROLL
    for (int i = 0; i < count; ++i)
        if (i < rest) pack.values[i] = from[i];
    return pack;
}
/// Those from `rest` on are not written.
template <int count, class T>
__device__ void store_adjacent(T* to, const Pack<T, count>& pack, int64_t rest) {
    if (rest >= count && is_aligned<count>(to)) return store_pack<count>(to, pack);
    COEUS_UNROLL
    for (int i = 0; i < count; ++i)
        if (i < rest) to[i] = pack.values[i];
}

/// Eight codes, the first one lowest.
struct CodeWords {
    uint32_t first, second;
};

/// `count` adjacent elements in float32. Those from `rest` on are zero, and not read.
template <int count, class T>
struct Adjacent {
    float values[count];

    __device__ Adjacent(const T* from, int64_t rest) {
        // not by load_adjacent: with packs of 8, that takes more registers
        if (rest >= count && is_aligned<count>(from)) {
            const Pack<T, count> pack = load_pack<count>(from);
            COEUS_UNROLL
            for (int i = 0; i < count; ++i) values[i] = load(pack.values[i]);
        } else {
            COEUS_UNROLL
            for (int i = 0; i < count; ++i) values[i] = i < rest ? load(from[i]) : 0.0f;
        }
    }
    /// Writes the codes; factor(i): that of an element.
    template <class Format, class F>
    __device__ void encode_to(uint8_t* to, int64_t rest, F&& factor) const {
        Pack<uint8_t, count> codes;
        COEUS_UNROLL
        for (int i = 0; i < count; ++i) codes.values[i] = code_of<Format>(values[i], factor(i));
        store_adjacent(to, codes, rest);
    }
    /// The codes of eight elements.
    template <class Format, class F>
    __device__ CodeWords code_words(F&& factor) const {
        static_assert(count == 8);
        CodeWords words = {};
        COEUS_UNROLL
        for (int i = 0; i < 4; ++i) {
            words.first |= uint32_t(code_of<Format>(values[i], factor(i))) << (8 * i);
            words.second |= uint32_t(code_of<Format>(values[4 + i], factor(4 + i))) << (8 * i);
        }
        return words;
    }
};

/// The magnitudes of the columns of a strip, at most.
template <class T>
struct LargestOfColumns {
    int32_t values[own_columns] = {};

    __device__ LargestOfColumns(const Rows<const T>& x, int64_t first, int rows, int64_t column,
                                int64_t width) {
        for (int i = 0; i < rows; ++i) {
            const Adjacent<own_columns, T> own(x[first + i] + column, width - column);
            COEUS_UNROLL
            for (int j = 0; j < own_columns; ++j) {
                const int32_t bits = magnitude_bits(own.values[j]);
                values[j] = bits > values[j] ? bits : values[j];
            }
        }
    }
};

template <class T>
__device__ int32_t largest_of_row(const BlockTeam& team, int64_t n, const T* x) {
    return team.largest_of(
        n, int32_t(0), [](float value) { return magnitude_bits(value); }, x);
}

/// A row for each block; the last one has `last` elements. bits_step: 0 if all rows have one maximum, else 1.
template <class T>
__global__ void largest_of_rows_kernel(int32_t* bits, int bits_step, Rows<const T> x, int64_t width,
                                       int64_t last) {
    const BlockTeam team(shared_memory());
    const int32_t largest = largest_of_row(team, blockIdx.x + 1 == gridDim.x ? last : width, x[blockIdx.x]);
    if (team.first()) atomicMax(bits + int64_t(blockIdx.x) * bits_step, largest);
}

template <class T>
__global__ void largest_of_columns_kernel(int32_t* bits, Rows<const T> x, int64_t width, RowGroups groups) {
    const PlaceInGroup at = groups.of_strip(blockIdx.x, strip_rows);
    const int64_t column = first_own_column();
    const int rows = int(at.padded < strip_rows ? at.padded : strip_rows);
    if (rows <= 0 || column >= width) return;
    const LargestOfColumns<T> largest(x, at.row, rows, column, width);
    for (int j = 0; j < own_columns && column + j < width; ++j)
        atomicMax(bits + at.group * width + column + j, largest.values[j]);
}

/// Scales that belong to no row.
template <class Format>
__global__ void scales_kernel(float* scales, const int32_t* bits, int64_t count, bool power_of_two) {
    grid_team().each(count,
                     [=](int64_t i) { scales[i] = 1 / factor_of(bits[i], Format::largest, power_of_two); });
}

/// As largest_of_rows_kernel. Without bits, the largest magnitude is that of the row. Without scales, they
/// are not written.
template <class Format, class T>
__global__ void quantize_rows_kernel(Rows<uint8_t> q, float* scales, Rows<const T> x, const int32_t* bits,
                                     int bits_step, int64_t width, int64_t last, bool power_of_two,
                                     RowGroups groups) {
    const int64_t row = blockIdx.x, n = row + 1 == gridDim.x ? last : width;
    if (groups.experts.number > 0 && groups.of_row(row).padded <= 0) return;
    const BlockTeam team(shared_memory());
    // the second time, the row comes from the cache
    const int32_t largest = bits ? bits[row * bits_step] : largest_of_row(team, n, x[row]);
    round_row<Format>(team, q[row], scales ? scales + row : nullptr, x[row], n, largest, power_of_two);
}

/// Neighbouring lanes share a block of a row.
template <class Format, class T>
__global__ void quantize_blocks_of_rows_kernel(Rows<uint8_t> q, Rows<uint8_t> codes, Rows<const T> x,
                                               int64_t width, ScaleRule rule, RowGroups groups) {
    constexpr int count = pack_count<T>(), lanes = int(scale_block) / count;
    const int64_t row = blockIdx.x;
    if (groups.experts.number > 0 && groups.of_row(row).padded <= 0) return;
    for (int64_t begin = 0; begin < width; begin += int64_t(blockDim.x) * count) {  // the same for all lanes
        const int64_t column = begin + int64_t(threadIdx.x) * count;
        const Adjacent<count, T> own(x[row] + column, width - column);
        int32_t largest = 0;
        COEUS_UNROLL
        for (int j = 0; j < count; ++j) {
            const int32_t bits = magnitude_bits(own.values[j]);
            largest = bits > largest ? bits : largest;
        }
        COEUS_UNROLL
        for (int distance = lanes / 2; distance > 0; distance /= 2) {
            const int32_t other = __shfl_xor_sync(whole_warp, largest, distance);
            largest = other > largest ? other : largest;
        }
        if (column >= width) continue;
        const BlockScale scale = block_scale<Format>(largest, rule);
        if (column % scale_block == 0) codes[row][column / scale_block] = scale.code;
        own.template encode_to<Format>(q[row] + column, width - column, [&](int) { return scale.factor; });
    }
}

/// Columns with given maxima (bits), or blocks of columns, whose codes are written.
template <class Format, class T, bool blocks>
__global__ void quantize_columns_kernel(Rows<uint8_t> q, Rows<uint8_t> codes, Rows<const T> x,
                                        const int32_t* bits, int64_t width, ScaleRule rule,
                                        RowGroups groups) {
    const PlaceInGroup at = groups.of_strip(blockIdx.x, strip_rows);
    const int64_t column = first_own_column(), rest = width - column;
    const int rows = int(at.padded < strip_rows ? at.padded : strip_rows);
    if (rows <= 0 || column >= width) return;
    float factors[own_columns];
    if constexpr (blocks) {
        const LargestOfColumns<T> largest(x, at.row, rows, column, width);
        COEUS_UNROLL
        for (int j = 0; j < own_columns; ++j) {
            const BlockScale scale = block_scale<Format>(largest.values[j], rule);
            factors[j] = scale.factor;
            if (j < rest) codes[at.row / scale_block][column + j] = scale.code;
        }
    } else {
        COEUS_UNROLL
        for (int j = 0; j < own_columns; ++j)
            factors[j] = factor_of(j < rest ? bits[at.group * width + column + j] : 0, Format::largest,
                                   rule == ScaleRule::power_of_two);
    }
    for (int i = 0; i < rows; ++i)
        Adjacent<own_columns, T>(x[at.row + i] + column, rest)
            .template encode_to<Format>(q[at.row + i] + column, rest, [&](int j) { return factors[j]; });
}

/// Side of a tile, and bytes from one of its rows to the next: rows 16 apart are in different banks.
constexpr int tile_side = 64, tile_pitch = tile_side + 4;
inline Grid grid_of_tiles(int64_t rows, int64_t cols) {
    return {dim3(blocks_for(div_ceil(rows, tile_side)), unsigned(div_ceil(cols, tile_side))), 256,
            size_t(tile_side * tile_pitch)};
}

/// Columns with one maximum, or with one each (of_columns). A block has a tile of x: it writes the codes as
/// they are, if q has room, and transposed, by 16 bytes each. The first tiles write the scales.
template <class Format, class T, bool of_columns>
__global__ void quantize_transposed_kernel(Rows<uint8_t> transposed, float* scales, Rows<uint8_t> q,
                                           Rows<const T> x, const int32_t* bits, int64_t rows, int64_t cols,
                                           bool power_of_two) {
    constexpr int count = 8, line = 16, words = line / 4, apart = 16;
    auto* const tile = shared_memory();
    const int64_t first_row = int64_t(blockIdx.x) * tile_side, first_col = int64_t(blockIdx.y) * tile_side;
    const int warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
    // a thread reads 8 elements of two rows
    const int row = warp / 4 * 32 + warp % 4 * 4 + lane / 8, col = lane % 8 * count;
    const int64_t rest = cols - first_col - col;
    const auto of_row = [&](int i) {
        return Adjacent<count, T>(x[first_row + i] + first_col + col, first_row + i < rows ? rest : 0);
    };
    const Adjacent<count, T> upper = of_row(row), lower = of_row(row + apart);
    float factors[of_columns ? count : 1];
    if constexpr (of_columns) {
        COEUS_UNROLL
        for (int j = 0; j < count; ++j)
            factors[j] = factor_of(j < rest ? bits[first_col + col + j] : 0, Format::largest, power_of_two);
    } else {
        factors[0] = factor_of(*bits, Format::largest, power_of_two);
    }
    const auto factor = [&](int j) { return factors[of_columns ? j : 0]; };
    const CodeWords of_upper = upper.template code_words<Format>(factor),
                    of_lower = lower.template code_words<Format>(factor);
    // two lanes have 16 elements of the same rows: one of them takes the upper row, the other the lower one
    const bool takes_lower = lane % 2 == 1;
    const CodeWords own = takes_lower ? of_lower : of_upper, given = takes_lower ? of_upper : of_lower;
    const CodeWords other = {__shfl_xor_sync(whole_warp, given.first, 1),
                             __shfl_xor_sync(whole_warp, given.second, 1)};
    const CodeWords left = takes_lower ? other : own, right = takes_lower ? own : other;
    const uint32_t codes[words] = {left.first, left.second, right.first, right.second};
    const int row_of_line = row + (takes_lower ? apart : 0), col_of_line = col / line * line;
    if (q.data && first_row + row_of_line < rows) {
        Pack<uint8_t, line> bytes;
        COEUS_UNROLL
        for (int k = 0; k < line; ++k) bytes.values[k] = uint8_t(codes[k / 4] >> (8 * (k % 4)));
        store_adjacent(q[first_row + row_of_line] + first_col + col_of_line, bytes,
                       cols - first_col - col_of_line);
    }
    auto* const of_tile = reinterpret_cast<uint32_t*>(tile + row_of_line * tile_pitch + col_of_line);
    COEUS_UNROLL
    for (int k = 0; k < words; ++k) of_tile[k] = codes[k];
    __syncthreads();
    // two lanes write 32 bytes of a column
    const int column = warp % 4 * 16 + lane / 2, from = warp / 4 * 32 + lane % 2 * line;
    if (first_col + column < cols) {
        Pack<uint8_t, line> bytes;
        COEUS_UNROLL
        for (int k = 0; k < line; ++k) bytes.values[k] = tile[(from + k) * tile_pitch + column];
        store_adjacent(transposed[first_col + column] + first_row + from, bytes, rows - first_row - from);
    }
    const int64_t scale = of_columns ? first_col + threadIdx.x : 0;
    const bool writes_scale = blockIdx.x == 0 && (of_columns ? threadIdx.x < tile_side && scale < cols
                                                             : blockIdx.y == 0 && threadIdx.x == 0);
    if (writes_scale) scales[scale] = 1 / factor_of(bits[scale], Format::largest, power_of_two);
}

/// Where the scales of a matrix are.
struct ScaleView {
    const void* scales;
    ScaleGroups groups;
    int64_t ld;  ///< of the elements

    /// The scale of column j of a row of a group of rows.
    __device__ float at(int64_t row, int64_t group, int64_t width, int64_t j) const {
        const auto* const numbers = static_cast<const float*>(scales);
        const auto* const codes = static_cast<const uint8_t*>(scales);
        switch (groups) {
            case ScaleGroups::one: return numbers[0];
            case ScaleGroups::rows: return numbers[row];
            case ScaleGroups::cols: return numbers[group * width + j];
            case ScaleGroups::rows32: return e8m0_value(codes[row * (ld / scale_block) + j / scale_block]);
            case ScaleGroups::cols32: return e8m0_value(codes[row / scale_block * ld + j]);
            case ScaleGroups::none: break;
        }
        return 1;
    }
};

template <class Format, class T>
__global__ void dequantize_kernel(Rows<T> y, Rows<const uint8_t> q, int64_t width, ScaleView scales,
                                  RowGroups groups) {
    const int64_t row = blockIdx.x;
    const PlaceInGroup at = groups.of_row(row);
    if (at.padded <= 0) return;
    const BlockTeam team(shared_memory());
    team.map_at(
        width, y[row],
        [=](int64_t j, uint8_t code) { return decode<Format>(code) * scales.at(row, at.group, width, j); },
        q[row]);
}

/// Goes down the columns, whose scales stay in registers.
template <class Format, class T>
__global__ void dequantize_columns_kernel(Rows<T> y, Rows<const uint8_t> q, int64_t width, ScaleView scales,
                                          RowGroups groups) {
    const PlaceInGroup at = groups.of_strip(blockIdx.x, strip_rows);
    const int64_t column = first_own_column(), rest = width - column;
    const int rows = int(at.padded < strip_rows ? at.padded : strip_rows);
    if (rows <= 0 || column >= width) return;
    float own_scales[own_columns];
    COEUS_UNROLL
    for (int j = 0; j < own_columns; ++j)
        own_scales[j] = j < rest ? scales.at(at.row, at.group, width, column + j) : 1.0f;
    for (int i = 0; i < rows; ++i) {
        const auto codes = load_adjacent<own_columns>(q[at.row + i] + column, rest);
        Pack<T, own_columns> values;
        COEUS_UNROLL
        for (int j = 0; j < own_columns; ++j)
            values.values[j] = store<T>(decode<Format>(codes.values[j]) * own_scales[j]);
        store_adjacent(y[at.row + i] + column, values, rest);
    }
}

template <class T>
Rows<T> codes_of(const Tensor& q) {
    return {static_cast<T*>(q.data), q.ld};
}

/// A matrix as rows for blocks: its own, or equal parts of a dense one, of which the last may be shorter.
struct Parts {
    int64_t rows, width, last;

    Parts(const Tensor& x, bool may_flatten) : rows(x.rows()), width(x.cols()), last(width) {
        if (!may_flatten) return;
        width = workspace::sum_block;
        rows = div_ceil(x.count(), width);
        last = x.count() - (rows - 1) * width;
    }
    Grid grid() const { return {blocks_for(rows), threads_for(width), BlockTeam::shared_bytes}; }
};

template <class Format, class T>
struct Quantization {
    Exec& exec;
    Tensor q, x, bits;
    ScaleRule rule;
    const Groups& experts;

    RowGroups groups() const { return groups_of(q, experts); }
    float* scales() const { return static_cast<float*>(q.scale); }
    const int32_t* largest() const { return bits ? bits.as<const int32_t>() : nullptr; }
    bool power_of_two() const { return rule == ScaleRule::power_of_two; }
    Rows<uint8_t> block_codes(int64_t ld) const { return {static_cast<uint8_t*>(q.scale), ld}; }

    void write_scales() const {
        launch(exec, "scales", {blocks_for(div_ceil(bits.count(), 256))}, scales_kernel<Format>, scales(),
               largest(), bits.count(), power_of_two());
    }
    void by_rows(bool one) const {
        if (one && scales()) write_scales();
        if (x.count() == 0) return;
        const bool may_flatten = one && !experts && q.dense() && x.dense();
        const Parts parts(x, may_flatten);
        Rows<uint8_t> to = codes_of<uint8_t>(q);
        Rows<const T> from = rows_of<const T>(x);
        if (may_flatten) to.ld = from.ld = parts.width;
        launch(exec, "quantize", parts.grid(), quantize_rows_kernel<Format, T>, to, one ? nullptr : scales(),
               from, largest(), one ? 0 : 1, parts.width, parts.last, power_of_two(), groups());
    }
    void by_columns() const {
        write_scales();
        if (x.count() == 0) return;
        launch(exec, "quantize", grid_of_strips(q, experts), quantize_columns_kernel<Format, T, false>,
               codes_of<uint8_t>(q), Rows<uint8_t>{}, rows_of<const T>(x), largest(), q.cols(), rule,
               groups());
    }
    void by_blocks_of_rows() const {
        launch(exec, "quantize", {blocks_for(x.rows()), threads_for(div_ceil(x.cols(), pack_count<T>()))},
               quantize_blocks_of_rows_kernel<Format, T>, codes_of<uint8_t>(q),
               block_codes(q.ld / scale_block), rows_of<const T>(x), x.cols(), rule, groups());
    }
    void by_blocks_of_columns() const {
        launch(exec, "quantize", grid_of_strips(x, experts), quantize_columns_kernel<Format, T, true>,
               codes_of<uint8_t>(q), block_codes(q.ld), rows_of<const T>(x), nullptr, x.cols(), rule,
               groups_of(x, experts));
    }
    void run() const {
        switch (q.groups) {
            case ScaleGroups::one: return by_rows(true);
            case ScaleGroups::rows: return by_rows(false);
            case ScaleGroups::cols: return by_columns();
            case ScaleGroups::rows32: return by_blocks_of_rows();
            case ScaleGroups::cols32: return by_blocks_of_columns();
            case ScaleGroups::none: break;
        }
        require(false, "quantize: the result has no groups of scales");
    }
};

}  // namespace

void Cuda::largest_magnitudes(Exec& exec, Tensor bits, Tensor x, ScaleGroups groups, const Groups& experts) {
    if (x.count() == 0) return;
    dispatch(x.dtype, [&]<class T>(T) {
        if (groups == ScaleGroups::cols)
            return launch(exec, "largest_magnitudes", grid_of_strips(x, experts),
                          largest_of_columns_kernel<T>, bits.as<int32_t>(), rows_of<const T>(x), x.cols(),
                          groups_of(x, experts));
        require(groups == ScaleGroups::one || groups == ScaleGroups::rows,
                "largest magnitudes are of one, rows or cols");
        const bool one = groups == ScaleGroups::one, may_flatten = one && x.dense();
        const Parts parts(x, may_flatten);
        launch(exec, "largest_magnitudes", parts.grid(), largest_of_rows_kernel<T>, bits.as<int32_t>(),
               one ? 0 : 1, Rows<const T>{x.as<const T>(), may_flatten ? parts.width : x.ld}, parts.width,
               parts.last);
    });
}

void Cuda::quantize(Exec& exec, Tensor q, Tensor x, Tensor bits, ScaleRule rule, const Groups& experts) {
    require(x.rows() == 0 || (q.rows() == x.rows() && q.cols() == x.cols()), "quantize: shapes do not fit");
    require(q.groups != ScaleGroups::rows32 || x.cols() % scale_block == 0,
            "quantize: blocks do not fill the rows");
    require(q.groups != ScaleGroups::cols32 || experts || x.rows() % scale_block == 0,
            "quantize: blocks do not fill the columns");
    with_format(q.dtype, [&]<class Format>(Format) {
        dispatch(x.dtype,
                 [&]<class T>(T) { Quantization<Format, T>{exec, q, x, bits, rule, experts}.run(); });
    });
}

void Cuda::quantize_transposed(Exec& exec, Tensor transposed, Tensor q, Tensor x, Tensor bits,
                               ScaleRule rule) {
    const bool of_columns = check_transposed(transposed, q, x);
    if (x.count() == 0) return;
    const Rows<uint8_t> rows_of_q = q ? codes_of<uint8_t>(q) : Rows<uint8_t>{};
    with_format(transposed.dtype, [&]<class Format>(Format) {
        dispatch(x.dtype, [&]<class T>(T) {
            launch(exec, "quantize_transposed", grid_of_tiles(x.rows(), x.cols()),
                   of_columns ? quantize_transposed_kernel<Format, T, true>
                              : quantize_transposed_kernel<Format, T, false>,
                   codes_of<uint8_t>(transposed), static_cast<float*>(transposed.scale), rows_of_q,
                   rows_of<const T>(x), bits.as<const int32_t>(), x.rows(), x.cols(),
                   rule == ScaleRule::power_of_two);
        });
    });
}

void decode_all(Exec& exec, Tensor y, Tensor q, bool leave_one, const Groups& experts) {
    require(y.rows() == q.rows() && y.cols() == q.cols(), "dequantize: shapes do not fit");
    if (y.count() == 0) return;
    const bool leaves = leave_one && q.groups == ScaleGroups::one;
    const ScaleView scales = {q.scale, leaves ? ScaleGroups::none : q.groups, q.ld};
    const bool by_columns = q.groups == ScaleGroups::cols || q.groups == ScaleGroups::cols32;
    const Grid grid = by_columns ? grid_of_strips(q, experts) : Parts(q, false).grid();
    with_format(q.dtype, [&]<class Format>(Format) {
        dispatch(y.dtype, [&]<class T>(T) {
            launch(exec, "dequantize", grid,
                   by_columns ? dequantize_columns_kernel<Format, T> : dequantize_kernel<Format, T>,
                   rows_of<T>(y), codes_of<const uint8_t>(q), q.cols(), scales, groups_of(q, experts));
        });
    });
}

void Cuda::quantize_values(Exec&, Tensor, Tensor, Tensor, const Form&) {
    require(false, "products on a GPU take codes, not values");
}

void Cuda::dequantize(Exec& exec, Tensor y, Tensor q) {
    decode_all(exec, y, q, false, {});
}

}  // namespace coeus::cuda
