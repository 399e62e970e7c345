// SPDX-License-Identifier: Apache-2.0
// Golden cases as they are found: no list of them and no count is in the code.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace coeus::test {

struct GoldenCase {
    std::string name;                      ///< "models/llama3_gqa"
    std::function<std::string()> refusal;  ///< what the program says if it refuses the case by name; else ""
    std::function<void()> compare;         ///< with checks
};

/// Compares each of them and prints one line for each: "NAME: compared", or "NAME: left out: WHY". If none is
/// compared, the test case is skipped, or fails under COEUS_REQUIRE_GOLDEN=1. Returns how many were compared.
int compare_golden(const std::vector<GoldenCase>& cases);

/// The message of a ConfigError that says that something is not built yet, or "". Any other error passes.
std::string refusal_of(const std::function<void()>& call);

/// The sub-folders of golden/NAME, in the order of their names; none if the folder is absent: then the
/// test case is skipped or fails.
std::vector<std::string> golden_folders(const std::string& name);

}  // namespace coeus::test
