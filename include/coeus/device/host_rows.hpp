// SPDX-License-Identifier: Apache-2.0
// Reads and writes rows of a tensor, which may be on a device, from the host, piece by piece. Not for the
// training loop.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/device/device.hpp"

namespace coeus {

/// Called for each piece: its rows, in memory that the host can access, and the number of its first row.
using EachPiece = FunctionRef<void(Tensor rows, int64_t first_row)>;
/// Bytes that pass through staging memory at a time; a piece has at least one row.
inline constexpr int64_t usual_piece_bytes = int64_t(16) << 20;

/// Calls `each` with the rows, piece by piece. Rows on a device must be dense. Rows on the host are one piece
/// and are not copied.
void read_rows(const Device& device, const Tensor& rows, EachPiece each,
               int64_t piece_bytes = usual_piece_bytes);
/// Calls `each` to fill each piece, and writes the piece to the rows.
void write_rows(const Device& device, const Tensor& rows, EachPiece each,
                int64_t piece_bytes = usual_piece_bytes);

}  // namespace coeus
