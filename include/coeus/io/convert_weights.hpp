// SPDX-License-Identifier: Apache-2.0
// From one kind of file to another, a few rows at a time, the arrays shared among ranks: little memory,
// however large the model.
#pragma once

#include "coeus/io/checkpoint.hpp"
#include "coeus/io/dcp.hpp"
#include "coeus/io/hub.hpp"
#include "coeus/io/hub_writer.hpp"

namespace coeus {

/// Arrays that lie somewhere, and how to read them.
struct ArraySource {
    struct Array {
        std::string path;  ///< "model/norm.weight"
        Dtype dtype;
        Shape shape;
    };
    std::vector<Array> arrays;
    /// Rows [first_row, +rows) of an array, all columns, in its type. A call begins at a multiple of
    /// rows_at_a_time() and asks for as many rows, but at the end. ConfigError where the file is damaged.
    std::function<void(size_t array, Tensor rows, int64_t first_row)> read;

    int64_t bytes() const;
    static int64_t rows_at_a_time(const Shape& shape);
};

/// Of a checkpoint, whose checksums are compared on the way. `moments`: also those of the optimizer.
ArraySource arrays_of_checkpoint(const std::string& path, bool moments);
/// Of a Hugging Face folder: `paths` and `tensors` (without memory) side by side.
ArraySource arrays_of_hub(const std::string& folder, const std::vector<std::string>& paths,
                          const std::vector<HubTensor>& tensors, const HubIgnores& ignores);

/// Of a folder of PyTorch's: `paths` and `names` of tensors in it side by side.
ArraySource arrays_of_dcp(DcpFolder folder, const std::vector<std::string>& paths,
                          const std::vector<std::string>& names);

/// Bytes that this rank has converted so far.
using ConversionProgress = std::function<void(int64_t bytes)>;

/// Writes a checkpoint of these arrays; `dtype`: of all, none: each in its own. Collective.
void write_checkpoint(const std::string& path, const TrainRecord& train, const ArraySource& source,
                      std::optional<Dtype> dtype, const Communicator& ranks,
                      const ConversionProgress& progress = {});
/// Writes arrays as the entries of a folder, one for one, and publishes it. Collective.
void write_hub(HubWriter& writer, const ArraySource& source, const Communicator& ranks,
               const ConversionProgress& progress = {});

/// Writes what all ranks hold of these tensors, the entries of a folder one for one, and publishes it.
/// Collective.
void write_hub(HubWriter& writer, const std::vector<CheckpointTensor>& tensors, const Communicator& ranks);

}  // namespace coeus
