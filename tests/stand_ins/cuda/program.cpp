// SPDX-License-Identifier: Apache-2.0
// The program that tests start is the one with the emulated GPU, unless the environment names another.
#include <cstdlib>

namespace {

[[maybe_unused]] const int chosen = setenv("COEUS_TEST_PROGRAM", COEUS_EMULATED_PROGRAM, 0);

}  // namespace
