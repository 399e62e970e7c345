// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/initial_weights.hpp"

#include "coeus/io/checkpoint.hpp"

namespace coeus {

std::string load_initial_weights(const Config& config, Decoder& decoder, const Communicator& data_ranks) {
    const std::string& path = config.checkpoint.initial_load_path;
    if (path.empty()) return "";
    load_checkpoint(path, checkpoint_tensors(decoder.parameters(), data_ranks, false), data_ranks);
    return path;
}

}  // namespace coeus
