// SPDX-License-Identifier: Apache-2.0
// Golden cases, as they are found in the folder: the code has no list of them and no count.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace coeus::test {

struct GoldenCase {
    std::string name;  ///< "models/llama3_gqa"
    // the program's message if it does not support the case; otherwise ""
    std::function<std::string()> refusal;
    std::function<void()> compare;  ///< with CHECKs
};

/// Compares each of them and prints one line for each: "NAME: compared", or "NAME: left out: WHY", and how
/// many were left out. If none is compared, the test case is skipped, or fails under COEUS_REQUIRE_GOLDEN=1.
/// Returns how many were compared.
int compare_golden(const std::vector<GoldenCase>& cases);

/// Returns the message of a ConfigError about a feature that is not implemented yet, or "". Other errors are
/// thrown on.
std::string refusal_of(const std::function<void()>& call);

/// The sub-folders of golden/NAME, sorted by name. If the folder is absent there are none, and the test case
/// is skipped or fails.
std::vector<std::string> golden_folders(const std::string& name);

/// The folders of models with a reference: those of golden/models, then those of golden/families.
std::vector<std::string> golden_models();
/// Why a folder cannot be compared: no family has its architecture. Otherwise "", and then the program must
/// read the folder.
std::string unknown_architecture(const std::filesystem::path& folder);

}  // namespace coeus::test
