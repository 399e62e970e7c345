// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders: config.json and weights in safetensors files. What their parameters are called is
// said by the models; here are the shapes, the reading, and the order of rows of rotated projections:
//   half-split (Hugging Face)   row j of a head forms a pair with row j + d/2
//   interleaved (torchtitan)    row 2j forms a pair with row 2j + 1
#pragma once

#include "coeus/device/device.hpp"
#include "coeus/file/safetensors.hpp"

#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// config.json of a decoder, in both forms: with rope_parameters (transformers 5) and with rope_theta and
/// rope_scaling (before).
struct HubConfig {
    /// The scaling of rope_type "llama3".
    struct RopeScaling {
        double factor, low_freq_factor, high_freq_factor, original_positions;
    };
    std::string architecture;  ///< "LlamaForCausalLM"
    int64_t hidden_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate_size = 0;
    int64_t vocab_size = 0, max_positions = 0;
    double rope_theta = 0, rms_norm_eps = 0;
    std::optional<RopeScaling> rope_scaling;
    bool tied = false;  ///< no lm_head.weight: the embedding's table
};

/// True for a folder with a config.json.
bool is_hub_folder(const std::string& path);

/// Reads config.json of a folder. `architectures`: those that can be built. ConfigError naming file and key:
/// another architecture, a missing or wrong value, a feature that is not built (biases, another activation or
/// RoPE scaling).
HubConfig read_hub_config(const std::string& folder, const std::vector<std::string>& architectures);

/// The row in half-split order that holds what `row` holds in interleaved order; rows are counted over all
/// heads.
constexpr int64_t half_split_row(int64_t row, int64_t head_dim) {
    const int64_t r = row % head_dim;
    return row - r + (r % 2) * (head_dim / 2) + r / 2;
}

/// One parameter as it is called in the folder, and where this process wants it.
struct HubTensor {
    std::string name;  ///< "model.layers.0.self_attn.q_proj.weight"
    Shape shape;       ///< global
    Tensor local;  ///< rows [first_row, +rows) and columns [first_col, +cols) in our order; any float type
    int64_t first_row = 0, first_col = 0;
    int64_t rotated_heads = 0;              ///< > 0: the rows are reordered from half-split to interleaved
    const Device* device = &host_device();  ///< where `local` is; dense rows, but on the host
};

/// Reads one of them, of these weights. ConfigError as below.
void read_hub_tensor(const std::string& folder, const Safetensors& weights, const HubTensor& tensor);
/// ConfigError where the weights have a tensor that none of these takes.
void check_hub_weights(const std::string& folder, const Safetensors& weights,
                       const std::vector<HubTensor>& tensors);
/// Reads all of these from a folder. ConfigError: a tensor missing, of another shape or type, or one there
/// that no parameter takes. Not collective.
void load_hub_weights(const std::string& folder, const std::vector<HubTensor>& tensors);

}  // namespace coeus
