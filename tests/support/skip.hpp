// SPDX-License-Identifier: Apache-2.0
// Cases that cannot run on this machine (Catch2 2 has no SKIP).
#pragma once

#include <string>

namespace coeus::test {

/// The exit code of a test program if every case that ran was skipped and no check failed. ctest shows the
/// program as skipped (SKIP_RETURN_CODE).
inline constexpr int skipped_code = 77;

/// Prints the line "skipped: WHY". The case counts as skipped and must then return. If any check of it fails,
/// before or after, the case counts as failed. All cases must use the same words for the same reason, since
/// tools/test.sh counts the reasons.
void skip(const std::string& why);
/// For something that a complete run of the tests requires: under COEUS_REQUIRE_GOLDEN=1 the case fails.
void skip_unless_required(const std::string& why);

/// Runs the cases that the command line selects. Returns 0, skipped_code, or another code if one failed.
int run_cases(int argc, char** argv);

}  // namespace coeus::test
