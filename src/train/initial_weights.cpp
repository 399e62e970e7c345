// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/initial_weights.hpp"

#include "coeus/train/pretrained.hpp"

namespace coeus {

std::string load_initial_weights(const Config& config, Decoder& decoder, const Communicator& data_ranks) {
    const Config::Checkpoint& options = config.checkpoint;
    const std::string path = options.initial_load_in_hf && options.initial_load_path.empty()
                                 ? config.model.hf_assets_path
                                 : options.initial_load_path;
    if (path.empty()) return "";
    const Pretrained source(path);
    source.load(decoder.parameters(), data_ranks);
    return source.path();
}

}  // namespace coeus
