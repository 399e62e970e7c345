// SPDX-License-Identifier: Apache-2.0
// Pretrained: weights on the disk and the model they belong to: a checkpoint file, a run's folder, or a
// Hugging Face folder.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/io/hub.hpp"
#include "coeus/io/hub_writer.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/state/parameters.hpp"

#include <filesystem>
#include <string>

namespace coeus {

/// The parameters of this model and their places in a Hugging Face folder, without memory.
std::vector<HubTensor> hub_tensors(const DecoderConfig& model);

/// Tensors of such a folder that are no parameter of the model.
HubIgnores hub_ignores(const DecoderConfig& model);

/// Where these arrays of a checkpoint ("model/norm.weight") go in a folder, one for one.
std::vector<HubEntry> hub_entries(const std::vector<std::string>& paths, const std::vector<Shape>& shapes,
                                  const DecoderConfig& model);
/// Paths in a checkpoint of the tensors of hub_tensors(model), one for one.
std::vector<std::string> checkpoint_paths(const DecoderConfig& model);

/// What a folder tells of the tokenizer at this place, which may be absent or of an unknown kind.
HubTokenizer hub_tokenizer(const std::string& place);

class Pretrained {
public:
    /// ConfigError: there are no weights, they are damaged, or the model is not built yet.
    explicit Pretrained(const std::filesystem::path& path);
    /// The same on every rank, looked at by rank 0 alone. Collective.
    Pretrained(const std::filesystem::path& path, const Communicator& ranks);

    const DecoderConfig& model() const { return model_; }
    /// A Hugging Face folder, not a checkpoint.
    bool is_hub() const { return is_hub_; }
    const std::string& path() const { return path_; }
    /// Folder (or file) of the tokenizer it was trained with.
    const std::string& tokenizer_folder() const { return tokenizer_folder_; }
    /// Sequence length it was trained with; where that is unknown, the model's longest or 2048, whichever is
    /// less.
    int64_t trained_seq_len() const { return trained_seq_len_; }
    /// Loads what this rank owns of the master weights. Collective over `ranks`.
    void load(const Parameters& parameters, const Communicator& ranks = alone()) const;

private:
    Pretrained() = default;
    std::string path_, tokenizer_folder_;
    bool is_hub_ = false;  // a Hugging Face folder, not a checkpoint
    DecoderConfig model_;
    int64_t trained_seq_len_ = 0;
};

}  // namespace coeus
