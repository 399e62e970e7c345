// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/initial_weights.hpp"

#include "coeus/io/hub.hpp"
#include "coeus/train/pretrained.hpp"

namespace coeus {

std::string load_initial_weights(const Config& config, Decoder& decoder, const Communicator& data_ranks) {
    const Config::Checkpoint& options = config.checkpoint;
    const std::string path = options.initial_load_in_hf && options.initial_load_path.empty()
                                 ? config.model.hf_assets_path
                                 : options.initial_load_path;
    if (path.empty()) return "";
    if (options.initial_load_in_hf != is_hub_folder(path))
        throw ConfigError(
            "checkpoint.initial_load_path = \"{}\": is {}a Hugging Face folder (one with config.json); set "
            "checkpoint.initial_load_in_hf = {}",
            path, options.initial_load_in_hf ? "not " : "", options.initial_load_in_hf ? "false" : "true");
    const Pretrained source(path);
    source.load(decoder.parameters(), data_ranks);
    return source.path();
}

}  // namespace coeus
