// SPDX-License-Identifier: Apache-2.0
// Reading mirrors writing: only rank 0 asks HDF5 for the places of the arrays and tells the other ranks.
// Then every rank reads only its own elements, at their places.
#pragma once

#include "checkpoint_format.hpp"

#include <string>
#include <vector>

namespace coeus {

/// The places of the arrays that were asked for, and the record of the run.
struct CheckpointContents {
    struct Array {
        int64_t file = 0;       ///< number in `files`
        int64_t elements = -1;  ///< offset of the first byte; -1: an array without elements
        Dtype type = Dtype::f32;
        Shape shape;
        int64_t block_rows = 1;  ///< rows per block of the checksums
    };
    TrainRecord train;
    std::vector<std::string> files;
    std::vector<Array> arrays;   ///< one for each array that was asked for
    std::vector<uint64_t> sums;  ///< checksums in the file, of all blocks of all arrays; only on rank 0
    std::string damage;          ///< what is wrong with the file; "": no damage was found
};

/// Finds these arrays in a file. The result is the same on all ranks, except for the sums. ConfigError if an
/// intact file is of another model, apart from what is left out, or is stored in a way that Coeus cannot
/// read. Collective.
CheckpointContents find_arrays(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                               const Communicator& ranks, const LeftOut& left_out);

/// The message for a file that the system cannot read, and that a run must not skip. `why` is its beginning.
std::string may_be_good(const std::string& why);

/// Reads this rank's part of each array, and returns the sums of its shares of the blocks. Uses neither MPI
/// nor HDF5. ReadError if the system cannot read the elements; another SystemError if the file ends before
/// them.
std::vector<uint64_t> read_arrays(const CheckpointContents& contents,
                                  const std::vector<CheckpointTensor>& tensors);

}  // namespace coeus
