// SPDX-License-Identifier: Apache-2.0
// The sum over all bytes of a checkpoint that are not elements or checksums: names, shapes, places, texts.
// libhdf5 (seen with 1.10.8) may crash, or not return, where these are damaged, and takes changed texts for
// good; so they are looked at before it sees them. Behind the end of what HDF5 knows of the file:
//   uint64 first, bytes    of each range left out, in ascending order
//   uint64 count           of these
//   uint64 sum             checksum_mix over the bytes before it that are in no range, by their offset
//   "CoeusLay"
#pragma once

#include "coeus/file/raw_file.hpp"

#include <vector>

namespace coeus {

/// Bytes [first, first + bytes) of a file.
struct ByteRange {
    int64_t first, bytes;
};

/// Appends the sum to a file of HDF5's that is complete but for these ranges.
void append_layout_guard(RawFile& file, std::vector<ByteRange> left_out);

}  // namespace coeus
