// SPDX-License-Identifier: Apache-2.0
// HubWriter: writes a Hugging Face folder: config.json, the weights in one or several safetensors files with
// their index, and the files of a tokenizer. Any number of ranks write it, each the rows that it has. The
// folder is named <folder>.part until it is complete.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/file/hub_place.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"

#include <map>
#include <optional>
#include <vector>

namespace coeus {

/// A parameter and its places in the folder; one tensor of the folder may contain several parameters.
struct HubEntry {
    Shape shape;
    std::vector<HubPlace> places;  ///< each row of the parameter is in exactly one of them; none: left out
};

/// The tokenizer of the weights.
struct HubTokenizer {
    /// Path of the tokenizer's folder, or of a file in it; "": none. Its files are copied, including
    /// generation_config.json.
    std::string folder;
    std::optional<int32_t> bos_id, eos_id;  ///< none: not known
};

class HubWriter {
public:
    static constexpr int64_t usual_file_bytes = int64_t(5) * 1000 * 1000 * 1000;

    /// Makes the files, without elements. `config`: contents of config.json, to which types and token ids are
    /// added. `dtype`: of the tensors, but those that keep float32 (HubPlace) have no fewer bits.
    /// `file_bytes`: most bytes of elements in one file, unless one tensor is larger. `tokenizer`: only that
    /// of rank 0 is used. Throws on all ranks: ConfigError if `folder` exists already, SystemError if it
    /// cannot be made or the disk has no room. Collective.
    HubWriter(std::string folder, Json config, std::vector<HubEntry> entries, Dtype dtype,
              const HubTokenizer& tokenizer, const Communicator& ranks,
              int64_t file_bytes = usual_file_bytes);
    /// Removes the unfinished folder if publish() was not called.
    ~HubWriter();
    HubWriter(const HubWriter&) = delete;
    HubWriter& operator=(const HubWriter&) = delete;

    /// Writes rows [first_row, +rows) and columns [first_col, +cols) of an entry, in Coeus's order of rows.
    /// All ranks together write each element once. Does not use MPI.
    void write(size_t entry, Tensor rows, int64_t first_row, int64_t first_col);
    /// Syncs all files to disk and gives the folder its name. Collective.
    void publish();

    /// Bytes of all tensors.
    int64_t bytes() const { return bytes_; }

private:
    struct Target {
        Shape shape;
        Dtype dtype = Dtype::f32;
        size_t file = 0;
        int64_t offset = 0;  // bytes from the beginning of the file
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
    std::vector<std::optional<RawFile>> open_;  // one per file, once this rank writes to it
    std::vector<std::byte> staging_, column_;
    bool published_ = false;
};

/// Writes config.json of a model, with types and token ids.
void write_hub_config(const std::string& folder, Json config, Dtype dtype, const HubTokenizer& tokenizer);

}  // namespace coeus
