// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/host_rows.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>

namespace coeus {

namespace {

// Calls pass(rows on the device, rows in staging memory, number of the first row) for each piece.
template <class Pass>
void in_pieces(const Device& device, const Tensor& rows, int64_t piece_bytes, const Pass& pass) {
    if (rows.count() == 0) return;
    require(rows.dense(), "rows of a device are adjacent");
    const int64_t most =
        std::min(rows.rows(), std::max<int64_t>(1, piece_bytes / (rows.bytes() / rows.rows())));
    const OwnedTensor staging(rows.dtype, rows.slice_rows(0, most).shape, "rows of a device",
                              device.staging());
    for (int64_t first = 0; first < rows.rows(); first += most) {
        const Tensor there = rows.slice_rows(first, std::min(most, rows.rows() - first));
        pass(there, staging.view.slice_rows(0, there.rows()), first);
    }
}

}  // namespace

void read_rows(const Device& device, const Tensor& rows, EachPiece each, int64_t piece_bytes) {
    if (device.is_host()) return each(rows, 0);
    in_pieces(device, rows, piece_bytes, [&](const Tensor& there, const Tensor& here, int64_t first) {
        device.copy(here.data, there.data, there.bytes());
        each(here, first);
    });
}

void write_rows(const Device& device, const Tensor& rows, EachPiece each, int64_t piece_bytes) {
    if (device.is_host()) return each(rows, 0);
    in_pieces(device, rows, piece_bytes, [&](const Tensor& there, const Tensor& here, int64_t first) {
        each(here, first);
        device.copy(there.data, here.data, there.bytes());
    });
}

}  // namespace coeus
