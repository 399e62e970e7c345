// SPDX-License-Identifier: Apache-2.0
// Checkpoints: one HDF5 file per step, with arrays in global shape, so that any mesh and any number of ranks
// can load it. doc/checkpoint.md describes the format for readers without Coeus:
//   /model/<name>   /optimizer/<moment>/<name> (moment: for example exp_avg)   /train (attributes)
//   /checksum/<path of an array>
// A file is written under a temporary name that ends with .part, and renamed when it is complete and on disk.
// So a file named step-00000100.h5 is always complete, even if the run is killed.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/device/device.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "coeus/io/checkpoint_folder.hpp"
#include "coeus/state/held_block.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

class Parameters;

/// The state of a run besides its arrays: the attributes of /train.
struct TrainRecord {
    int64_t step = 0;         ///< optimizer steps taken
    int64_t tokens_seen = 0;  ///< over all ranks
    int64_t seed = 0;
    int64_t sample = 0;   ///< number of the next sample of the data stream
    std::string deck;     ///< effective deck, TOML
    std::string version;  ///< of the program
    std::string model;    ///< description from which the model can be built
    /// Steps taken since the learning-rate schedule and the optimizer's bias correction began; none: `step`.
    std::optional<int64_t> schedule_step, optimizer_step;
    std::string guards;               ///< state of the guards, JSON; empty: none
    bool validation_is_left = false;  ///< a stop interrupted the validation after this step

    bool operator==(const TrainRecord&) const = default;
};

/// One array of the state: its path in the file, and the blocks that this rank holds. Every rank lists the
/// same arrays in the same order, also those of which it has no blocks.
struct CheckpointTensor {
    std::string path;                    ///< "model/norm.weight", "optimizer/exp_avg/norm.weight"
    Shape shape;                         ///< global shape
    Dtype dtype;                         ///< type of the blocks, and of the array in the file
    std::vector<HeldBlock> blocks = {};  ///< all have the same number of columns
    /// This rank's number among the `replicas` ranks that hold the same part and share the work of writing
    /// it.
    int replica = 0, replicas = 1;
    const Device* device = &host_device();  ///< where the blocks are; rows are dense unless on the host
    bool is_exact = false;  ///< in float32 even if a file has weights of fewer bits (Param::is_exact)

    /// Rows of all blocks together.
    int64_t rows() const;
    /// Elements of all blocks together.
    int64_t count() const;
};

/// The weights that this rank owns; with `optimizer` also the moments.
std::vector<CheckpointTensor> checkpoint_tensors(const Parameters& parameters, bool optimizer);

/// Saves and loads the checkpoints of one run. Every member function is collective over its ranks, except
/// those that only return an argument of the constructor. If one throws, it throws on all ranks.
class CheckpointStore {
public:
    /// `keep_latest`: how many full checkpoints are kept after a save; 0: all. `num_part_files`: number of
    /// files for the arrays of one checkpoint; 1: they are in the checkpoint's own file. The first save makes
    /// the folder.
    CheckpointStore(std::string folder, int64_t keep_latest, const Communicator& ranks,
                    int64_t num_part_files = 1, CheckpointWriter writer = {})
        : folder_(std::move(folder), keep_latest, std::move(writer)),
          num_part_files_(num_part_files),
          ranks_(ranks) {}

    const CheckpointFolder& folder() const { return folder_; }
    int64_t num_part_files() const { return num_part_files_; }

    struct Saved {
        std::string path;
        int64_t bytes = 0;       ///< of all arrays
        double own_seconds = 0;  ///< of save(), until this rank's part was on disk; 0 if asynchronous
    };
    /// Writes step-<step>.h5, then removes checkpoints beyond keep_latest. CollectiveError (disk full, no
    /// permission): the message has the file and the newest good checkpoint, which is kept; no incomplete
    /// file remains. NotFiniteError if a weight is not finite.
    Saved save(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors) const;
    /// Writes model-<step>.h5: only the weights, in the type `dtype`. A resume never loads it.
    Saved export_model(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors,
                       Dtype dtype) const;

    struct Loaded {
        std::string path;
        TrainRecord train;
    };
    /// Loads the newest full checkpoint that is intact. Damaged ones are skipped with a warning. None if
    /// there is no checkpoint. ConfigError if all are damaged, or if an intact one is of another model.
    /// SystemError if the folder exists but cannot be listed, or if a file cannot be read.
    std::optional<Loaded> load_newest(const std::vector<CheckpointTensor>& tensors) const {
        return load_newest([&](const std::string&) { return tensors; });
    }
    /// The same with the arrays that `tensors_of` says for the path of a file; called on all ranks.
    std::optional<Loaded> load_newest(
        FunctionRef<std::vector<CheckpointTensor>(const std::string&)> tensors_of) const;
    /// ConfigError, which lists the steps of existing checkpoints, if there is none of this step.
    Loaded load_step(int64_t step, const std::vector<CheckpointTensor>& tensors) const;

private:
    Saved write(const std::string& path, const TrainRecord& train,
                const std::vector<CheckpointTensor>& tensors, std::optional<Dtype> dtype) const;
    CheckpointFolder folder_;
    int64_t num_part_files_;
    const Communicator& ranks_;
};

/// True for an array of a file that is not loaded, although it is a parameter: "model/...".
using LeftOut = std::function<bool(const std::string& path)>;

/// Loads exactly these arrays from a file, a full checkpoint or only a model. Converts between
/// floating-point types. ConfigError: not a checkpoint, truncated, a checksum that does not match (with array
/// and rows), another model (with the parameter and both shapes); it may have parameters that are left out.
/// Collective.
TrainRecord load_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                            const Communicator& ranks, const LeftOut& left_out = {});

/// The description of a checkpoint, without its elements.
struct CheckpointHeader {
    struct Array {
        std::string path;
        hdf5::Type type;
        Shape shape;
    };
    bool full = false;               ///< with the optimizer state
    std::vector<std::string> parts;  ///< files with the arrays; empty: they are in the checkpoint's own file
    int64_t bytes = 0;               ///< size of the file and its parts
    TrainRecord train;
    std::vector<Array> arrays;  ///< in alphabetical order of their paths
};
/// ConfigError if any byte of a checkpoint other than elements and checksums has changed since it was
/// written. Call it before HDF5 reads the file, since HDF5 may crash on damaged files. Accepts files without
/// a guard, which other programs and earlier versions write. Not collective.
void require_sound_layout(const std::string& path);
/// ConfigError if the file is not an intact checkpoint. Does not verify checksums. Not collective.
CheckpointHeader read_checkpoint_header(const std::string& path);
/// Sixteen hexadecimal digits that depend on nothing but the weights in a checkpoint: their names, shapes,
/// types and checksums. Reads no elements. ConfigError as read_checkpoint_header(), and if an array has no
/// checksums. Not collective.
std::string weights_id(const std::string& path);

/// Rows [first_row, last_row) of an array whose bytes differ from those that were written.
struct DamagedRows {
    std::string array;
    int64_t first_row, last_row;
};
/// Compares every checksum of a file. Empty: the file is intact. Calls `progress(bytes so far, bytes in
/// all)`. ConfigError as read_checkpoint_header(), and if an array is missing. Not collective.
std::vector<DamagedRows> verify_checkpoint(const std::string& path,
                                           const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace coeus
