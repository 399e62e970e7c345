// SPDX-License-Identifier: Apache-2.0
// The layout guard: a sum over all bytes of a checkpoint that are not elements or checksums (names, shapes,
// places, texts). If these are damaged, libhdf5 may crash or not return (seen with 1.10.8), and it does not
// notice changed texts. So they are verified before HDF5 reads the file. The guard is after the end of the
// part that HDF5 uses:
//   uint64 first, bytes    for each range that is left out, in ascending order
//   uint64 count           number of these ranges
//   uint64 sum             of checksum_mix over the preceding bytes that are in no range, by their offset
//   "CoeusLay"
#pragma once

#include "coeus/file/raw_file.hpp"

#include <vector>

namespace coeus {

/// Bytes [first, first + bytes) of a file.
struct ByteRange {
    int64_t first, bytes;
};

/// Appends the guard to a file that HDF5 has written and that is complete except for these ranges.
void append_layout_guard(RawFile& file, std::vector<ByteRange> left_out);

}  // namespace coeus
