// SPDX-License-Identifier: Apache-2.0
// Rows that are rounded to 8 bits with a scale each, also while kernels write them (Tensor::rounded). A block
// keeps such a row in shared memory, since its scale follows from its largest magnitude.
#pragma once

#include "../../rows/matrix.hpp"
#include "../launch.hpp"
#include "../ptx/mma.hpp"
#include "../workspace.hpp"
#include "largest.hpp"

#include <bit>

namespace coeus::cuda {

/// As scaled_code, by the GPU's instruction if it has one.
template <class Format>
__device__ uint8_t code_of(float x, float factor) {
    return uint8_t((encode_by_gpu<Format>(x * factor) & 127U) | (std::bit_cast<uint32_t>(x) >> 24 & 128U));
}

/// Writes the codes of a row, and its scale unless `scale` is null.
template <class Format, class T>
__device__ void round_row(const BlockTeam& team, uint8_t* codes, float* scale, const T* row, int64_t width,
                          int32_t largest, bool power_of_two) {
    const float factor = factor_of(largest, Format::largest, power_of_two);
    if (scale && team.first()) *scale = 1 / factor;
    team.map(
        width, codes, [=](float value) { return code_of<Format>(value, factor); }, row);
}

/// Rows that a kernel writes as they are and rounded.
template <class T>
struct RoundedRows {
    Rows<T> values;
    Rows<uint8_t> codes;
    float* scales;

    explicit RoundedRows(const Tensor& y)
        : values(rows_of<T>(y)),
          codes{static_cast<uint8_t*>(y.rounded), y.cols()},
          scales(static_cast<float*>(y.rounded_scale)) {
        require(!y.largest, "a kernel rounds its result or finds its largest magnitude");
        require(y.rounded_scale != nullptr, "a GPU writes codes and scales, not values");
        require(y.cols() * int64_t(sizeof(T)) <= workspace::most_row_bytes,
                "a row that is rounded while it is written is too long");
    }

    /// f(team, row) computes a row, which it writes only by the team's map(). Team: of a block, with its
    /// shared memory after that of a BlockTeam.
    template <class Team = BlockTeam, class F>
    __device__ void write(int64_t row, int64_t width, F&& f) const {
        const WithLargest<Team> team(shared_memory());
        const BlockTeam block(shared_memory());
        T* const kept = reinterpret_cast<T*>(shared_memory() + Team::shared_bytes);
        f(team, kept);
        const int32_t largest = block.largest_of_threads(team.largest_written().first);
        block.map(
            width, values[row], [](Acc<T> value) { return value; }, kept);
        round_row<E4m3>(block, codes[row], scales + row, kept, width, largest, true);
    }
};

/// Blocks with room for a row each.
template <class T>
Grid grid_of_rounded_rows(int64_t rows, int64_t width) {
    return {blocks_for(rows), threads_for(width), BlockTeam::shared_bytes + size_t(width) * sizeof(T)};
}

}  // namespace coeus::cuda
