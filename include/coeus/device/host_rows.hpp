// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor that may be on a device, read and written by the host a piece at a time: not for the
// training loop.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/device/device.hpp"

namespace coeus {

/// A piece, where the host can follow its address, and the number of its first row.
using EachPiece = FunctionRef<void(Tensor rows, int64_t first_row)>;
/// What passes through staging memory at a time; at least a row.
inline constexpr int64_t usual_piece_bytes = int64_t(16) << 20;

/// Each piece has the rows. Rows of a device are adjacent; those of the host are one piece, and are not
/// copied.
void read_rows(const Device& device, const Tensor& rows, EachPiece each,
               int64_t piece_bytes = usual_piece_bytes);
/// Rows are what `each` makes of a piece.
void write_rows(const Device& device, const Tensor& rows, EachPiece each,
                int64_t piece_bytes = usual_piece_bytes);

}  // namespace coeus
