// SPDX-License-Identifier: Apache-2.0
// HubWriter: a Hugging Face folder, written by any number of ranks, each the rows that it has: config.json,
// the weights in one or several safetensors files with their index, and the files of a tokenizer. It is made
// as <folder>.part and renamed when it is complete.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/file/hub_place.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"

#include <map>
#include <optional>
#include <vector>

namespace coeus {

/// A parameter and where it goes; several may lie in one tensor of the folder.
struct HubEntry {
    Shape shape;
    std::vector<HubPlace> places;  ///< each of its rows in one of them
};

/// The tokenizer that goes with the weights.
struct HubTokenizer {
    std::string folder;  ///< or its file: its files are copied, generation_config.json among them; "": none
    std::optional<int32_t> bos_id, eos_id;  ///< where they are known
};

class HubWriter {
public:
    static constexpr int64_t usual_file_bytes = int64_t(5) * 1000 * 1000 * 1000;

    /// Makes the files without elements. `config`: of config.json, whose types and tokens are added. No file
    /// of weights holds more than `file_bytes` of elements, unless one tensor is larger. The tokenizer that
    /// rank 0 names counts. Collective; throws on all ranks: ConfigError where `folder` is there already,
    /// SystemError where it cannot be made or the disk has no room.
    HubWriter(std::string folder, Json config, std::vector<HubEntry> entries, Dtype dtype,
              const HubTokenizer& tokenizer, const Communicator& ranks,
              int64_t file_bytes = usual_file_bytes);
    /// Removes the unfinished folder where publish() did not come.
    ~HubWriter();
    HubWriter(const HubWriter&) = delete;
    HubWriter& operator=(const HubWriter&) = delete;

    /// Rows [first_row, +rows) and columns [first_col, +cols) of an entry in our order; all ranks together
    /// write each element once. No MPI.
    void write(size_t entry, Tensor rows, int64_t first_row, int64_t first_col);
    /// Brings everything to the disk and gives the folder its name. Collective.
    void publish();

    /// Of all tensors.
    int64_t bytes() const { return bytes_; }

private:
    struct Target {
        Shape shape;
        size_t file = 0;
        int64_t offset = 0;  // in the file, in bytes
    };
    struct File {
        std::string name;
        std::vector<std::string> tensors;
        std::string header;
        int64_t bytes = 0;
    };
    void divide(int64_t file_bytes);
    void make_files(Json config, const HubTokenizer& tokenizer) const;
    std::string part(const std::string& name) const;
    void write_place(const HubPlace& place, Tensor rows, int64_t first_row, int64_t first_col);

    std::string folder_;
    std::vector<HubEntry> entries_;
    Dtype dtype_;
    const Communicator& ranks_;
    int64_t bytes_ = 0;
    std::vector<File> files_;
    std::map<std::string, Target> tensors_;     // by name
    std::vector<std::optional<RawFile>> open_;  // of the files
    std::vector<std::byte> staging_, column_;
    bool published_ = false;
};

/// config.json of a model, with types and tokens.
void write_hub_config(const std::string& folder, Json config, Dtype dtype, const HubTokenizer& tokenizer);

}  // namespace coeus
