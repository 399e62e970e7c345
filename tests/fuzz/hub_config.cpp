// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face folder, and the config.json that we write for the model that was read from
// it.
#include "coeus/file/packed_formats.hpp"
#include "coeus/models/hub_model.hpp"
#include "target.hpp"

namespace coeus::fuzz::hub_config {

void read_input(std::string_view input) {
    write_scratch("config.json", input);
    read_packed_format(scratch().string());
    const HubModel model = read_hub_model(scratch().string());
    hub_config_of(model.config);
}

std::vector<std::string> seeds() {
    const std::string base =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 32, \"intermediate_size\": 48, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_hidden_layers\": 2, \"vocab_size\": "
        "64, "
        "\"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, \"hidden_act\": "
        "\"silu\", \"tie_word_embeddings\": true";
    return {
        base + "}",
        base +
            ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
            "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}}",
        base + ", \"head_dim\": 8, \"torch_dtype\": \"bfloat16\", \"unheard_of\": [1, {}]}",
        base + ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}}",
        "{}"};
}

const Target target("hub_config", read_input, seeds);

}  // namespace coeus::fuzz::hub_config
