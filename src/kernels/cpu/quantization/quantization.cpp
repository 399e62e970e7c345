// SPDX-License-Identifier: Apache-2.0
// Matrices in 8-bit floats: scales, conversion, and back.
#include "quantization.hpp"

#include "../../rows/team.hpp"
#include "../../scales.hpp"
#include "../cpu.hpp"
#include "../experts/group_rows.hpp"
#include "rounded.hpp"

namespace coeus::cpu {

namespace {

/// The largest magnitude of a block. The constant length makes it several times faster.
template <class T>
int32_t largest_of_block(const T* x) {
    int32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < scale_block; ++j) largest = std::max(largest, magnitude_bits(float(load(x[j]))));
    return largest;
}

/// A range of rows whose columns share scales, and the number of their group.
struct RowRange {
    int64_t first, count, group;
};

/// Calls f(range) for the groups of rows: those of experts with their padding, or the matrices of x[G,R,C].
template <class F>
void for_row_groups(const Tensor& x, const Groups& experts, F&& f) {
    if (experts) {
        for (int64_t g = 0; g < experts.number(); ++g) {
            const GroupRows rows = rows_of_group(experts, g);
            f(RowRange{rows.begin, rows.padded, g});
        }
        return;
    }
    const int64_t matrices = x.shape.rank == 3 ? x.shape[0] : 1, rows = matrices ? x.rows() / matrices : 0;
    for (int64_t g = 0; g < matrices; ++g) f(RowRange{g * rows, rows, g});
}

/// largest[j] = the largest of it and |x[j]| of some rows. Takes four rows at a time, since `largest` is read
/// and written for each.
template <class T>
void keep_larger(int64_t n, int32_t* largest, const T* x, int64_t ld, int64_t rows) {
    const auto larger = [](int32_t a, int32_t b) { return a > b ? a : b; };
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const T *const x0 = x + i * ld, *const x1 = x0 + ld, *const x2 = x1 + ld, *const x3 = x2 + ld;
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) {
            const int32_t a = larger(magnitude_bits(float(load(x0[j]))), magnitude_bits(float(load(x1[j])))),
                          b = larger(magnitude_bits(float(load(x2[j]))), magnitude_bits(float(load(x3[j]))));
            largest[j] = larger(largest[j], larger(a, b));
        }
    }
    for (; i < rows; ++i) {
        const T* const row = x + i * ld;
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) largest[j] = larger(largest[j], magnitude_bits(float(load(row[j]))));
    }
}

/// Columns are read in parts of rows: long ones, since memory is fast if it is read in order.
constexpr int64_t columns_at_a_time = 1024, rows_at_a_time = 64;

template <class T>
void largest_of_columns(Exec& exec, Tensor bits, Tensor x, const Groups& experts) {
    const int64_t columns = x.cols(), parts = div_ceil(columns, columns_at_a_time);
    for_row_groups(x, experts, [&](const RowRange& range) {
        const int64_t end_row = range.first + range.count;
        int32_t* const all = bits.as<int32_t>() + range.group * columns;
        parallel_blocks(exec, parts * div_ceil(range.count, rows_at_a_time), 1,
                        [&](int64_t block, int64_t, int64_t) {
                            const int64_t first = block % parts * columns_at_a_time,
                                          n = std::min(columns_at_a_time, columns - first),
                                          row = range.first + block / parts * rows_at_a_time;
                            int32_t largest[columns_at_a_time] = {};
                            keep_larger(n, largest, x.row<const T>(row) + first, x.ld,
                                        std::min(rows_at_a_time, end_row - row));
#pragma omp critical(coeus_largest_of_columns)
                            for (int64_t j = 0; j < n; ++j)
                                all[first + j] = std::max(all[first + j], largest[j]);
                        });
    });
}

}  // namespace

void Cpu::largest_magnitudes(Exec& exec, Tensor bits, Tensor x, ScaleGroups groups, const Groups& experts) {
    auto* const all = bits.as<int32_t>();
    dispatch(x.dtype, [&]<class T>(T) {
        if (groups == ScaleGroups::cols) return largest_of_columns<T>(exec, bits, x, experts);
        if (groups == ScaleGroups::rows)
            return parallel_rows(exec, x.rows(), x.cols(), [&](int64_t i) {
                all[i] = std::max(all[i], largest_of(x.cols(), x.row<const T>(i)));
            });
        require(groups == ScaleGroups::one, "largest magnitudes are of one, rows or cols");
        int32_t largest = all[0];
        const int64_t rows = x.rows();
#pragma omp parallel for num_threads(exec.threads) reduction(max \
                                                             : largest) if (x.count() > (int64_t(1) << 14))
        for (int64_t i = 0; i < rows; ++i)
            largest = std::max(largest, largest_of(x.cols(), x.row<const T>(i)));
        all[0] = largest;
    });
}

namespace {

/// The scales of n blocks, and the factors of their elements.
template <class Format>
void block_scales(int64_t n, uint8_t* code, float* factor, const int32_t* largest, ScaleRule rule) {
    const auto each = [=](auto&& scale_of) {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) {
            const BlockScale scale = scale_of(largest[j]);
            code[j] = scale.code;
            factor[j] = scale.factor;
        }
    };
    if (rule == ScaleRule::mx_floor)
        each([](int32_t bits) { return block_scale<Format>(bits, ScaleRule::mx_floor); });
    else
        each([](int32_t bits) { return block_scale<Format>(bits, ScaleRule::mx_rceil); });
}

/// What a quantization reads and writes. Q: uint8_t for codes, or bf16 for values, whose scales are not
/// written but multiplied by, unless there is one that is not a power of two.
template <class Format, class T, class Q>
struct Quantization {
    Exec& exec;
    Tensor q, x, bits;
    ScaleRule rule;
    const Groups& experts;

    static constexpr bool has_codes = std::is_same_v<Q, uint8_t>;

    Q* row_of_q(int64_t i) const { return static_cast<Q*>(q.data) + i * q.ld; }
    const T* row_of_x(int64_t i) const { return x.row<const T>(i); }
    float* scales() const { return static_cast<float*>(q.scale); }
    uint8_t* codes() const { return static_cast<uint8_t*>(q.scale); }
    float factor(int32_t largest) const {
        return factor_of(largest, Format::largest, rule == ScaleRule::power_of_two);
    }

    /// Calls f(row) for all rows of x, or for those of the experts.
    template <class F>
    void each_row(F&& f) const {
        if (!experts || x.rows() == 0) return parallel_rows(exec, x.rows(), x.cols(), f);
        for_row_groups(x, experts, [&](const RowRange& range) {
            parallel_rows(exec, range.count, x.cols(), [&](int64_t i) { f(range.first + i); });
        });
    }
    void one() const {
        const float f = factor(bits.as<const int32_t>()[0]);
        if (q.scale) scales()[0] = 1 / f;
        const float scale = rule == ScaleRule::power_of_two ? 1 / f : 1;
        each_row([&](int64_t i) { put_row<Format>(x.cols(), row_of_q(i), row_of_x(i), f, scale); });
    }
    void by_rows() const {
        const auto* const given = bits ? bits.as<const int32_t>() : nullptr;
        for (int64_t i = 0; given && x.rows() == 0 && i < q.rows(); ++i) scales()[i] = 1 / factor(given[i]);
        each_row([&](int64_t i) {
            const float f = factor(given ? given[i] : largest_of(x.cols(), row_of_x(i)));
            if constexpr (has_codes) scales()[i] = 1 / f;
            put_row<Format>(x.cols(), row_of_q(i), row_of_x(i), f, 1 / f);
        });
    }
    void by_columns() const {
        const int64_t columns = q.cols();
        const Scope scope(exec.workspace);
        const auto numbers = [&] { return exec.workspace.alloc(Dtype::f32, {columns}).template as<float>(); };
        float *const factors = numbers(), *const own_scales = has_codes ? nullptr : numbers();
        for_row_groups(q, experts, [&](const RowRange& range) {
            const auto* const largest = bits.as<const int32_t>() + range.group * columns;
            float* const scale = has_codes ? scales() + range.group * columns : own_scales;
            for (int64_t j = 0; j < columns; ++j) {
                factors[j] = factor(largest[j]);
                scale[j] = 1 / factors[j];
            }
            parallel_rows(exec, std::min(range.count, x.rows()), columns, [&](int64_t i) {
                put_row<Format>(columns, row_of_q(range.first + i), row_of_x(range.first + i), factors,
                                scale);
            });
        });
    }
    void by_blocks_of_rows() const {
        constexpr int64_t most = columns_at_a_time / scale_block;
        each_row([&](int64_t i) {
            for (int64_t first = 0; first < x.cols(); first += columns_at_a_time) {
                const int64_t n = std::min(columns_at_a_time, x.cols() - first), blocks = n / scale_block;
                const T* const from = row_of_x(i) + first;
                int32_t largest[most];
                uint8_t own_codes[most];
                float of_block[most], factors[columns_at_a_time], values[columns_at_a_time];
                for (int64_t b = 0; b < blocks; ++b) largest[b] = largest_of_block(from + b * scale_block);
                uint8_t* const code =
                    has_codes ? codes() + i * (q.ld / scale_block) + first / scale_block : own_codes;
                block_scales<Format>(blocks, code, of_block, largest, rule);
                for (int64_t b = 0; b < blocks; ++b) {
                    std::fill_n(factors + b * scale_block, scale_block, of_block[b]);
                    if (!has_codes) std::fill_n(values + b * scale_block, scale_block, e8m0_value(code[b]));
                }
                put_row<Format>(n, row_of_q(i) + first, from, factors, values);
            }
        });
    }
    void by_blocks_of_columns() const {
        if (!experts) return by_blocks_of_columns(0, x.rows());
        for_row_groups(x, experts,
                       [&](const RowRange& range) { by_blocks_of_columns(range.first, range.count); });
    }
    void by_blocks_of_columns(int64_t begin_row, int64_t count) const {
        const int64_t columns = x.cols();
        parallel_blocks(exec, count, scale_block, [&](int64_t, int64_t first, int64_t last) {
            first += begin_row, last += begin_row;
            for (int64_t begin = 0; begin < columns; begin += columns_at_a_time) {
                const int64_t n = std::min(columns_at_a_time, columns - begin);
                int32_t largest[columns_at_a_time] = {};
                uint8_t own_codes[columns_at_a_time];
                float factors[columns_at_a_time], values[columns_at_a_time];
                keep_larger(n, largest, row_of_x(first) + begin, x.ld, last - first);
                uint8_t* const code = has_codes ? codes() + first / scale_block * q.ld + begin : own_codes;
                block_scales<Format>(n, code, factors, largest, rule);
                for (int64_t j = 0; !has_codes && j < n; ++j) values[j] = e8m0_value(code[j]);
                for (int64_t i = first; i < last; ++i)
                    put_row<Format>(n, row_of_q(i) + begin, row_of_x(i) + begin, factors, values);
            }
        });
    }
    void run(ScaleGroups groups) const {
        switch (groups) {
            case ScaleGroups::one: return one();
            case ScaleGroups::rows: return by_rows();
            case ScaleGroups::cols: return by_columns();
            case ScaleGroups::rows32: return by_blocks_of_rows();
            case ScaleGroups::cols32: return by_blocks_of_columns();
            case ScaleGroups::none: break;
        }
        require(false, "quantize: there are no groups of scales");
    }
};

/// Writes codes or values, by Q.
template <class Q>
void quantize_as(Exec& exec, Tensor q, Tensor x, Tensor bits, const Form& form, const Groups& experts) {
    require(x.rows() == 0 || (q.rows() == x.rows() && q.cols() == x.cols()), "quantize: shapes do not fit");
    require(form.groups != ScaleGroups::rows32 || x.cols() % scale_block == 0,
            "quantize: blocks do not fill the rows");
    if (experts) check_groups(experts, q);  // whose groups begin and end with whole blocks
    require(form.groups != ScaleGroups::cols32 || experts || x.rows() % scale_block == 0,
            "quantize: blocks do not fill the columns");
    with_format(form.type, [&]<class Format>(Format) {
        dispatch(x.dtype, [&]<class T>(T) {
            Quantization<Format, T, Q>{exec, q, x, bits, form.rule, experts}.run(form.groups);
        });
    });
}

}  // namespace

void Cpu::quantize(Exec& exec, Tensor q, Tensor x, Tensor bits, ScaleRule rule, const Groups& experts) {
    quantize_as<uint8_t>(exec, q, x, bits, {q.dtype, q.groups, rule}, experts);
}

void Cpu::quantize_values(Exec& exec, Tensor y, Tensor x, Tensor bits, const Form& form) {
    require(y.dtype == Dtype::bf16 && y.groups == groups_of_values(form),
            "quantize_values: y does not fit the form");
    require(form.rule != ScaleRule::exact || form.groups == ScaleGroups::one,
            "quantize_values: several scales are not powers of two");
    quantize_as<bf16>(exec, y, x, bits, form, {});
}

namespace {

/// Calls f(format, element type) for q and y.
template <class F>
void with_types(const Tensor& q, const Tensor& y, F&& f) {
    with_format(q.dtype,
                [&]<class Format>(Format) { dispatch(y.dtype, [&]<class T>(T) { f(Format(), T()); }); });
}

/// y = the values of row i of q; `group`: the number of its matrix or group of rows. An 8-bit float times a
/// power of two is exact in every type.
template <class Format, class T>
void decode_row(T* y, const Tensor& q, int64_t i, int64_t group, bool leave_one) {
    using A = Acc<T>;
    const auto* const code = static_cast<const uint8_t*>(q.data) + i * q.ld;
    const auto* const scales = static_cast<const float*>(q.scale);
    const auto* const exponents = static_cast<const uint8_t*>(q.scale);
    const int64_t n = q.cols();
    const auto by_one = [=](float scale) {
        if ((std::bit_cast<uint32_t>(scale) & 0x7fffffU) == 0)
            Lane().each(n, [=](int64_t j) { y[j] = store_exact<T>(A(decode<Format>(code[j])) * A(scale)); });
        else
            Lane().each(n, [=](int64_t j) { y[j] = store<T>(A(decode<Format>(code[j])) * A(scale)); });
    };
    switch (q.groups) {
        case ScaleGroups::none: return by_one(1);
        case ScaleGroups::one: return by_one(leave_one ? 1 : scales[0]);
        case ScaleGroups::rows: return by_one(scales[i]);
        case ScaleGroups::cols: {
            const float* const scale = scales + group * n;
            return Lane().each(n,
                               [=](int64_t j) { y[j] = store<T>(A(decode<Format>(code[j])) * A(scale[j])); });
        }
        case ScaleGroups::rows32:
            for (int64_t block = 0; block * scale_block < n; ++block) {
                const A scale = A(e8m0_value(exponents[i * (q.ld / scale_block) + block]));
                for (int64_t j = block * scale_block; j < (block + 1) * scale_block; ++j)
                    y[j] = store_exact<T>(A(decode<Format>(code[j])) * scale);
            }
            return;
        case ScaleGroups::cols32: {
            const uint8_t* const exponent = exponents + i / scale_block * q.ld;
            return Lane().each(n, [=](int64_t j) {
                y[j] = store_exact<T>(A(decode<Format>(code[j])) * A(e8m0_value(exponent[j])));
            });
        }
    }
}

}  // namespace

namespace {

/// A thread has tiles of x, whose codes it makes by rows.
template <class Format, class T>
void quantize_tiles(Exec& exec, Tensor transposed, Tensor q, Tensor x, const int32_t* bits, bool of_columns,
                    bool power_of_two) {
    constexpr int64_t side = 64;
    const auto factor = [=](int64_t j) { return factor_of(bits[j], Format::largest, power_of_two); };
    auto* const scales = static_cast<float*>(transposed.scale);
    for (int64_t j = 0; j < (of_columns ? x.cols() : 1); ++j) scales[j] = 1 / factor(j);
    const int64_t down = div_ceil(x.rows(), side);
    parallel_blocks(exec, down * div_ceil(x.cols(), side), 1, [&](int64_t tile, int64_t, int64_t) {
        const int64_t row = tile % down * side, col = tile / down * side,
                      rows = std::min(side, x.rows() - row), cols = std::min(side, x.cols() - col);
        float factors[side] = {};
        for (int64_t j = 0; j < cols; ++j) factors[j] = factor(of_columns ? col + j : 0);
        uint8_t codes[side][side];
        for (int64_t i = 0; i < rows; ++i) {
            put_row<Format>(cols, codes[i], x.row<const T>(row + i) + col, factors, factors);
            if (q) std::copy_n(codes[i], cols, static_cast<uint8_t*>(q.data) + (row + i) * q.ld + col);
        }
        for (int64_t j = 0; j < cols; ++j)
            for (int64_t i = 0; i < rows; ++i)
                static_cast<uint8_t*>(transposed.data)[(col + j) * transposed.ld + row + i] = codes[i][j];
    });
}

}  // namespace

void Cpu::quantize_transposed(Exec& exec, Tensor transposed, Tensor q, Tensor x, Tensor bits,
                              ScaleRule rule) {
    const bool of_columns = check_transposed(transposed, q, x);
    with_types(transposed, x, [&]<class Format, class T>(Format, T) {
        quantize_tiles<Format, T>(exec, transposed, q, x, bits.as<const int32_t>(), of_columns,
                                  rule == ScaleRule::power_of_two);
    });
}

void decode_all(Exec& exec, Tensor y, Tensor q, bool leave_one, const Groups& experts) {
    require(y.rows() == q.rows() && y.cols() == q.cols(), "dequantize: shapes do not fit");
    with_types(q, y, [&]<class Format, class T>(Format, T) {
        for_row_groups(q, experts, [&](const RowRange& range) {
            parallel_rows(exec, range.count, q.cols(), [&](int64_t i) {
                decode_row<Format>(y.row<T>(range.first + i), q, range.first + i, range.group, leave_one);
            });
        });
    });
}

void Cpu::dequantize(Exec& exec, Tensor y, Tensor q) {
    decode_all(exec, y, q, false, {});
}

}  // namespace coeus::cpu
