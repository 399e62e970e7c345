// SPDX-License-Identifier: Apache-2.0
// Tests start the program with the emulated GPU, unless the environment names another one.
#include <cstdlib>

namespace {

[[maybe_unused]] const int chosen = setenv("COEUS_TEST_PROGRAM", COEUS_EMULATED_PROGRAM, 0);

}  // namespace
