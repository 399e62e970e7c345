// SPDX-License-Identifier: Apache-2.0
// The option reference (`coeus help options --markdown`), read back: the options that Coeus knows.
#pragma once

#include "coeus/config/config.hpp"

#include <string>
#include <vector>

namespace coeus::test {

struct ListedOption {
    std::string name, type;
    std::string words;  ///< "a, b", the choices up to the first one that has a mark; empty: any value
    bool has_field;     ///< its value is stored
};
std::vector<ListedOption> listed_options();
/// The other names of options: short, older and newer ones.
std::vector<std::string> listed_aliases();

/// The effective deck of a config, without its first line, which names the version.
std::string deck_body(const Config& config);

}  // namespace coeus::test
