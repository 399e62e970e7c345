// SPDX-License-Identifier: Apache-2.0
// The settings in a printed advice, as words of a command line.
#pragma once

#include "coeus/base/types.hpp"

#include <regex>
#include <string>
#include <vector>

namespace coeus::test {

struct Advice {
    std::vector<std::string> settings;  ///< of "N ranks would do"; 0: the same number as now
    int ranks = 0;                      ///< of "N ranks would do"; 0: as many as now

    explicit Advice(const std::string& text) {
        static const std::regex setting(R"(([a-z_]+\.[a-z_]+) = ("[^"]*"|[^ ,]+))"),
            number(R"((\d+) ranks would do)");
        for (std::sregex_iterator at(text.begin(), text.end(), setting), end; at != end; ++at) {
            std::string value = (*at)[2];
            std::erase(value, '"');
            settings.push_back("--" + (*at)[1].str() + "=" + value);
        }
        std::smatch found;
        if (std::regex_search(text, found, number)) ranks = std::stoi(found[1]);
    }
};

}  // namespace coeus::test
