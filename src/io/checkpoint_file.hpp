// SPDX-License-Identifier: Apache-2.0
// CheckpointFile: a checkpoint while it is being written. Rank 0 lets HDF5 make the file with all its arrays
// (contiguous, allocated, unwritten) and tells the other ranks where each array begins. Then every rank
// writes its rows at their places. Then rank 0 adds the checksums and renames the file. Writing needs neither
// MPI nor HDF5, so a thread can do it during training. With many arrays of a few MB it is 2 to 5 times as
// fast as collective HDF5 writes on a local disk.
#pragma once

#include "checkpoint_format.hpp"
#include "layout_guard.hpp"

#include <optional>

namespace coeus {

class CheckpointFile {
public:
    /// Makes <path>.part (<path>.ID.part if the writer has an id) with everything but elements and checksums.
    /// With `num_part_files` > 1 it also makes that many part files (checkpoint_parts.hpp). `dtype`: type of
    /// all stored arrays; none: each keeps its own. Collective; if it throws, it throws on all ranks.
    CheckpointFile(std::string path, const TrainRecord& train, const std::vector<CheckpointTensor>& tensors,
                   std::optional<Dtype> dtype, const Communicator& ranks, int64_t num_part_files = 1,
                   CheckpointWriter writer = {});

    const std::string& path() const { return path_; }
    /// Bytes of the elements of all arrays.
    int64_t bytes() const { return bytes_; }

    /// Writes rows [first_row, +rows) and columns [first_col, +cols) of an array. All ranks together write
    /// each element once. Uses neither MPI nor HDF5. SystemError if the disk is full.
    void write(size_t array, Tensor rows, int64_t first_row, int64_t first_col);
    /// Writes and syncs this rank's shares of all arrays. It may be called again and then writes everything
    /// again. NotFiniteError, with the weight's name, if a weight is not finite.
    void write(const std::vector<CheckpointTensor>& tensors);
    /// Syncs to disk what this rank has written.
    void sync();
    /// Writes the checksums and renames the file, if the writer still owns the folder. Call it after sync()
    /// on every rank. Collective; throws on all ranks.
    void publish();
    /// Removes the unfinished file and its parts. On rank 0 only.
    void discard() const;

private:
    /// Byte offsets: of the elements in data_path(file), of the checksums in the unfinished file; -1 for an
    /// array without elements.
    struct Place {
        int64_t file = 0, elements = -1, checksums = -1;
    };
    static_assert(sizeof(Place) == 24);
    int64_t bytes_of(size_t array) const;
    std::string data_path(int64_t file) const;
    void make_parts(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors);
    void make_file(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors);
    void add_arrays(hdf5::File& file, int64_t number, const std::vector<CheckpointTensor>& tensors);
    void link_arrays(hdf5::File& file, const std::vector<CheckpointTensor>& tensors) const;
    std::vector<ByteRange> elements_in(int64_t file) const;
    void sync_parts() const;

    CheckpointWriter writer_;
    std::string path_, unfinished_path_;
    int64_t num_part_files_;  // 0: the elements are in the checkpoint's own file
    std::string parts_folder_;
    std::vector<Dtype> types_;  // as stored
    std::vector<Shape> shapes_;
    const Communicator& ranks_;
    int64_t bytes_ = 0;
    std::vector<Place> places_;
    std::vector<std::optional<RawFile>> data_;  // open from the first write to sync()
    std::vector<BlockSums> sums_;               // sums of what this rank has written
    std::vector<std::byte> staging_;
};

/// Throws the error of a failed save, with the newest good checkpoint, which is kept. NotFiniteError or
/// ConfigError if the reason is one, else CollectiveError. Collective.
[[noreturn]] void throw_not_saved(const std::string& path, const std::exception& reason,
                                  const CheckpointFolder& folder, const Communicator& ranks);

}  // namespace coeus
