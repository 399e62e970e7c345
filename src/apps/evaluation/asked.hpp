// SPDX-License-Identifier: Apache-2.0
// What the command line of `coeus evaluate` asks for.
#pragma once

#include "../commands.hpp"
#include "coeus/evaluate/requests.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace coeus::apps {

Flags evaluate_flags();

struct Asked {
    std::string place;
    std::vector<std::string> files;
    std::string tokenizer, dtype, output, samples;
    std::vector<int64_t> steps;  ///< checkpoints of these steps
    int64_t context, stride, batch, limit;
    AddBos add_bos;
    std::string delimiter;
    bool training_windows, by_position, all_steps, follow;
    bool again;  ///< also steps that have results already

    bool several() const { return all_steps || !steps.empty() || follow; }
};

/// ConfigError for values and combinations that are not valid.
Asked asked_by(const Flags& flags);

/// ConfigError for options of a deck other than those that say where and how the command computes.
void require_options_of_machine(const Arguments& arguments);

}  // namespace coeus::apps
