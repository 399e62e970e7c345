// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

namespace coeus::apps {

const std::vector<Command>& commands() {
    static const std::vector<Command> all = {};
    return all;
}

}  // namespace coeus::apps
