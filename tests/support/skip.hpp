// SPDX-License-Identifier: Apache-2.0
// Cases that cannot be tried on this machine: Catch2 2 has no SKIP.
#pragma once

#include <string>

namespace coeus::test {

/// What a test program ends with if every case that ran was skipped and no check failed; ctest shows it as
/// skipped (SKIP_RETURN_CODE).
inline constexpr int skipped_code = 77;

/// Says "skipped: WHY", one line; the case counts as skipped and must then return. A check of it that fails,
/// before or after, wins. The same reason has the same words in all cases, since tools/test.sh counts them.
void skip(const std::string& why);
/// For what a complete run of the suite has: under COEUS_REQUIRE_GOLDEN=1 the case fails.
void skip_unless_required(const std::string& why);

/// Runs the cases that the command line selects: 0, skipped_code, or anything else where one failed.
int run_cases(int argc, char** argv);

}  // namespace coeus::test
