// SPDX-License-Identifier: Apache-2.0
// Reading, the mirror of writing: rank 0 alone asks HDF5 where the arrays lie and tells the others; then
// every rank reads its own elements at their places, and nothing else.
#pragma once

#include "checkpoint_format.hpp"

#include <string>
#include <vector>

namespace coeus {

/// What a file holds of the arrays that were asked for.
struct CheckpointContents {
    struct Array {
        int64_t file = 0;       ///< number in `files`
        int64_t elements = -1;  ///< position of the first byte; -1: an array without elements
        Dtype type = Dtype::f32;
        Shape shape;
        int64_t block_rows = 1;  ///< of the checksums
    };
    TrainRecord train;
    std::vector<std::string> files;
    std::vector<Array> arrays;   ///< one for each array asked for
    std::vector<uint64_t> sums;  ///< of all blocks of all arrays; of rank 0 alone
    std::string damage;          ///< what is wrong with the bytes of the file; "": nothing is known of
};

/// Looks whether a file holds these arrays, and where; the same on all ranks but for the sums. ConfigError
/// where a sound file is of another model, or not stored as Coeus reads it. Collective.
CheckpointContents find_arrays(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                               const Communicator& ranks);

/// The message of a file that the system cannot read, which a run must not pass over.
std::string may_be_good(const std::string& why);

/// Reads this rank's part of each array, and returns the sums of its shares of the blocks. Neither MPI nor
/// HDF5. ReadError where the system cannot read them, another SystemError where they are not there.
std::vector<uint64_t> read_arrays(const CheckpointContents& contents,
                                  const std::vector<CheckpointTensor>& tensors);

}  // namespace coeus
