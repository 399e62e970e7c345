// SPDX-License-Identifier: Apache-2.0
// Conversion of weights between file formats. It handles a few rows at a time and divides the arrays among
// the ranks, so that it needs little memory for models of any size.
#pragma once

#include "coeus/hub/hub.hpp"
#include "coeus/hub/hub_writer.hpp"
#include "coeus/io/checkpoint.hpp"

namespace coeus {

/// A set of arrays in files, and a function that reads them.
struct ArraySource {
    struct Array {
        std::string path;  ///< "model/norm.weight"
        Dtype dtype;
        Shape shape;
        bool is_exact = false;  ///< stays in float32 if a file has weights of fewer bits
    };
    std::vector<Array> arrays;
    /// Reads rows [first_row, +rows) of array number `array`, all columns, in its type. `first_row` is a
    /// multiple of rows_at_a_time(), and a call asks for that many rows, except at the end. ConfigError if
    /// the file is damaged.
    std::function<void(size_t array, Tensor rows, int64_t first_row)> read;

    int64_t bytes() const;
    static int64_t rows_at_a_time(const Shape& shape);
};

/// The arrays of a checkpoint. Reading verifies their checksums. `moments`: also the optimizer's moments.
ArraySource arrays_of_checkpoint(const std::string& path, bool moments);
/// The arrays of a Hugging Face folder. paths[i] is the path of tensors[i], which needs no memory (no
/// blocks).
ArraySource arrays_of_hub(const std::string& folder, const std::vector<std::string>& paths,
                          const std::vector<HubTensor>& tensors, const HubIgnores& ignores,
                          NotFinite infinite = NotFinite::refuse);

/// Called with the bytes that this rank has converted so far.
using ConversionProgress = std::function<void(int64_t bytes)>;

/// Writes a checkpoint with these arrays. `dtype`: type of the arrays in the file, but exact ones stay in
/// float32; none: each keeps its own. Collective.
void write_checkpoint(const std::string& path, const TrainRecord& train, const ArraySource& source,
                      std::optional<Dtype> dtype, const Communicator& ranks,
                      const ConversionProgress& progress = {});
/// Writes array i as entry i of a Hugging Face folder, for all i, and publishes the folder. Collective.
void write_hub(HubWriter& writer, const ArraySource& source, const Communicator& ranks,
               const ConversionProgress& progress = {});

/// Writes the blocks of tensor i on all ranks as entry i of a Hugging Face folder, for all i, and publishes
/// the folder. Collective.
void write_hub(HubWriter& writer, const std::vector<CheckpointTensor>& tensors, const Communicator& ranks);

}  // namespace coeus
