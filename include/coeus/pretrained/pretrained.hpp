// SPDX-License-Identifier: Apache-2.0
// Pretrained: weights on disk and their model, from a checkpoint, a run's folder or a Hugging Face folder.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/hub/hub.hpp"
#include "coeus/hub/hub_writer.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/registry.hpp"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace coeus {

/// The parameters of this model and their places in a Hugging Face folder. Allocates no memory for the
/// parameters.
std::vector<HubTensor> hub_tensors(const DecoderConfig& model);

/// A function that is true for tensors of such a folder that are not parameters of the model and can be
/// ignored.
HubIgnores hub_ignores(const DecoderConfig& model);

/// The tensors of which such a tensor must be a copy.
HubCopies hub_copies(const DecoderConfig& model);
/// True if such a folder has a place for the biases that balance the model's experts, or there are none.
bool hub_holds_biases(const DecoderConfig& model);

/// The places of a checkpoint's arrays ("model/norm.weight") in a Hugging Face folder, one entry per array.
std::vector<HubEntry> hub_entries(const std::vector<std::string>& paths, const std::vector<Shape>& shapes,
                                  const DecoderConfig& model);
/// The paths in a checkpoint of the parameters that stay in float32 (Param::is_exact).
std::set<std::string> exact_paths(const DecoderConfig& model);
/// The paths in a checkpoint of the tensors of hub_tensors(model), in the same order.
std::vector<std::string> checkpoint_paths(const DecoderConfig& model);

/// The number of the model's layers of multi-token prediction of which a Hugging Face folder has tensors.
/// transformers leaves out the tensors, but not the number in config.json.
int64_t depths_in(const std::string& folder, const DecoderConfig& model);

/// The folder and the special ids of the tokenizer at `place`, for writing a Hugging Face folder. If the
/// tokenizer is missing or of an unknown kind, logs a warning.
HubTokenizer hub_tokenizer(const std::string& place);

class Pretrained {
public:
    /// ConfigError: there are no weights, they are damaged, or the model is not implemented yet.
    explicit Pretrained(const std::filesystem::path& path) : Pretrained(path, true) {}
    /// The same on every rank; only rank 0 reads files. `warns`: unknown keys of config.json are reported.
    /// Collective.
    Pretrained(const std::filesystem::path& path, const Communicator& ranks, bool warns = true);

    const DecoderConfig& model() const { return model_; }
    /// True for a Hugging Face folder, false for a checkpoint.
    bool is_hub() const { return is_hub_; }
    const std::string& path() const { return path_; }
    /// Folder (or file) of the tokenizer with which the model was trained.
    const std::string& tokenizer_folder() const { return tokenizer_folder_; }
    /// Sequence length with which the model was trained. If this is unknown: 2048, or the model's maximum
    /// sequence length if that is less.
    int64_t trained_seq_len() const { return trained_seq_len_; }
    /// ConfigError if the model has more layers of multi-token prediction than there are here.
    void require_depths_of(const DecoderConfig& model) const;
    /// Loads the master weights that this rank owns. The decoder may have fewer layers of multi-token
    /// prediction. Collective over `ranks`.
    void load(const Decoder& decoder, const Communicator& ranks = alone()) const;
    /// The arrays, of a checkpoint with the moments. ConfigError as load().
    ArraySource arrays(bool moments, const Communicator& ranks = alone(),
                       NotFinite infinite = NotFinite::refuse) const;

private:
    Pretrained() = default;
    Pretrained(const std::filesystem::path& path, bool warns);
    std::string path_, tokenizer_folder_;
    bool is_hub_ = false;
    DecoderConfig model_;
    int64_t trained_seq_len_ = 0;
};

}  // namespace coeus
