// SPDX-License-Identifier: Apache-2.0
// CheckpointFile: a checkpoint on its way to its name. Rank 0 lets HDF5 make the file with all its arrays
// (contiguous, allocated, unwritten) and tells the others where each begins; then every rank writes its rows
// at their places; then rank 0 adds the checksums and gives it its name. Writing needs neither MPI nor HDF5,
// so that a thread can do it beside the training; and with many arrays of a few MB it is 2 to 5 times as fast
// as collective HDF5 writes on a local disk.
#pragma once

#include "checkpoint_format.hpp"
#include "layout_guard.hpp"

#include <optional>

namespace coeus {

class CheckpointFile {
public:
    /// Makes <path>.part (with the writer's id in its name: <path>.ID.part), with `num_part_files` > 1 also
    /// so many part files (checkpoint_parts.hpp), with everything but elements and checksums. `dtype`: all
    /// arrays are stored in it; none: each in its own. Collective; where it throws, it throws on all ranks.
    CheckpointFile(std::string path, const TrainRecord& train, const std::vector<CheckpointTensor>& tensors,
                   std::optional<Dtype> dtype, const Communicator& ranks, int64_t num_part_files = 1,
                   CheckpointWriter writer = {});

    const std::string& path() const { return path_; }
    /// Elements of all arrays.
    int64_t bytes() const { return bytes_; }

    /// Writes rows [first_row, +rows) and columns [first_col, +cols) of an array; all ranks together write
    /// each element once. Neither MPI nor HDF5. SystemError where the disk is full.
    void write(size_t array, Tensor rows, int64_t first_row, int64_t first_col);
    /// This rank's shares of all arrays, and to the disk with them. Writes again what was written before.
    /// NotFiniteError names weights that are not finite.
    void write(const std::vector<CheckpointTensor>& tensors);
    /// Brings to the disk what this rank has written.
    void sync();
    /// Checksums and name, if the folder still is the writer's. Collective, after sync() on every rank;
    /// throws on all.
    void publish();
    /// Removes what was written and has no good name. Of rank 0 alone.
    void discard() const;

private:
    /// Places: of the elements in data_path(file), of the checksums in <path>.part; -1 for an array without
    /// elements.
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
    int64_t num_part_files_;  // 0: the elements are in <path>.part
    std::string parts_folder_;
    std::vector<Dtype> types_;  // as stored
    std::vector<Shape> shapes_;
    const Communicator& ranks_;
    int64_t bytes_ = 0;
    std::vector<Place> places_;
    std::vector<std::optional<RawFile>> data_;  // from the first write to sync()
    std::vector<BlockSums> sums_;               // of what this rank has written
    std::vector<std::byte> staging_;
};

/// The error of a save that failed, which names the newest good checkpoint: that one stays. NotFiniteError
/// where the reason is one, else CollectiveError. Collective.
[[noreturn]] void throw_not_saved(const std::string& path, const std::exception& reason,
                                  const CheckpointFolder& folder, const Communicator& ranks);

}  // namespace coeus
