// SPDX-License-Identifier: Apache-2.0
// Checkpoints: one HDF5 file per step, arrays in global shape, so that any mesh and any number of ranks loads
// what another wrote. The format, for readers without Coeus, is doc/checkpoint.md:
//   /model/<name>   /optimizer/<moment>/<name>, as "exp_avg"   /train (attributes)
//   /checksum/<path of an array>
// A file is written as step-00000100.h5.part and renamed when it is complete and on the disk: a file under a
// good name is whole, whatever kills the run.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/device/device.hpp"
#include "coeus/file/hdf5.hpp"
#include "coeus/io/checkpoint_folder.hpp"
#include "coeus/io/held_block.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

class Parameters;

/// Where a run is: the attributes of /train.
struct TrainRecord {
    int64_t step = 0;         ///< optimizer steps taken
    int64_t tokens_seen = 0;  ///< over all ranks
    int64_t seed = 0;
    int64_t sample = 0;   ///< number of the next sample of the data stream
    std::string deck;     ///< effective deck, TOML
    std::string version;  ///< of the program
    std::string model;    ///< description from which the model can be built again
    /// Steps that the learning-rate schedule and the optimizer's bias correction have seen; none: `step`.
    std::optional<int64_t> schedule_step, optimizer_step;
    std::string guards;  ///< what the loss-spike guard's decisions need, JSON; empty: there is none
    bool validation_is_left = false;  ///< the one after this step was cut short by a stop

    bool operator==(const TrainRecord&) const = default;
};

/// One array of the state: what it is called in the file, and what this rank holds of it. Every rank lists
/// the same arrays in the same order, also those of which it holds nothing (no blocks).
struct CheckpointTensor {
    std::string path;                    ///< "model/norm.weight", "optimizer/exp_avg/norm.weight"
    Shape shape;                         ///< global
    Dtype dtype;                         ///< that is stored
    std::vector<HeldBlock> blocks = {};  ///< of that type and of equal columns
    int replica = 0,
        replicas = 1;  ///< this rank's number among those that hold the same part; they share the work
    const Device* device = &host_device();  ///< where the blocks are; dense rows, but on the host

    /// What all blocks hold together: rows, and elements.
    int64_t rows() const;
    int64_t count() const;
};

/// What this rank owns of the weights, with `optimizer` also of the moments.
std::vector<CheckpointTensor> checkpoint_tensors(const Parameters& parameters, bool optimizer);

/// Saves and loads the checkpoints of one run. Every member function but those that return what was given at
/// construction is collective over its ranks, and where it throws, it throws on all of them.
class CheckpointStore {
public:
    /// `keep_latest`: how many full checkpoints stay after a save; 0: all. `num_part_files`: over how many
    /// files the arrays of one are spread; 1: all are in the one that is opened. The first save makes the
    /// folder.
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
        double own_seconds = 0;  ///< of save(): until this rank's part was on the disk
    };
    /// Writes step-<step>.h5 and removes what keep_latest allows. CollectiveError (disk full, no permission)
    /// names the file and the newest good checkpoint, which stands; nothing half-written remains.
    Saved save(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors) const;
    /// Writes model-<step>.h5: the weights alone, in this type. Never loaded by a resume.
    Saved export_model(const TrainRecord& train, const std::vector<CheckpointTensor>& tensors,
                       Dtype dtype) const;

    struct Loaded {
        std::string path;
        TrainRecord train;
    };
    /// Loads the newest full checkpoint that is sound; a damaged one is passed over with a warning that names
    /// it. Nothing if there is none at all; ConfigError if there are some but all are damaged, or if a sound
    /// one is of another model; SystemError where the folder is there but cannot be listed.
    std::optional<Loaded> load_newest(const std::vector<CheckpointTensor>& tensors) const;
    /// ConfigError naming the steps there are, where there is no such one.
    Loaded load_step(int64_t step, const std::vector<CheckpointTensor>& tensors) const;

private:
    Saved write(const std::string& path, const TrainRecord& train,
                const std::vector<CheckpointTensor>& tensors, std::optional<Dtype> dtype) const;
    CheckpointFolder folder_;
    int64_t num_part_files_;
    const Communicator& ranks_;
};

/// Loads exactly these arrays from a file, full or model only, converting between floating types.
/// ConfigError: not a checkpoint, truncated, a checksum that does not match (names array and rows), another
/// model (names the parameter and both shapes). Collective.
TrainRecord load_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                            const Communicator& ranks);

/// What a file says of itself.
struct CheckpointHeader {
    struct Array {
        std::string path;
        hdf5::Type type;
        Shape shape;
    };
    bool full = false;               ///< with optimizer
    std::vector<std::string> parts;  ///< files that hold the arrays; none: this one does
    int64_t bytes = 0;               ///< of the file and its parts
    TrainRecord train;
    std::vector<Array> arrays;  ///< in alphabetical order of their paths
};
/// ConfigError where a checkpoint's bytes beside elements and checksums are not those that were written:
/// before HDF5 sees them, which may crash then. Files of other programs and earlier versions pass. Not
/// collective.
void require_sound_layout(const std::string& path);
/// Not collective. ConfigError where the file is no sound checkpoint; checksums are not looked at.
CheckpointHeader read_checkpoint_header(const std::string& path);

/// A block of rows whose bytes are not those that were written.
struct DamagedRows {
    std::string array;
    int64_t first_row, last_row;  ///< last: one beyond
};
/// Compares every checksum of a file; empty: all is well. `progress(bytes so far, of how many)`. Not
/// collective.
std::vector<DamagedRows> verify_checkpoint(const std::string& path,
                                           const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace coeus
