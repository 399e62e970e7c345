// SPDX-License-Identifier: Apache-2.0
// Tests start the program with the emulated GPU and its stand-in for cuDNN, unless the environment names
// others.
#include <cstdlib>

namespace {

[[maybe_unused]] const int chosen = setenv("COEUS_TEST_PROGRAM", COEUS_EMULATED_PROGRAM, 0),
                           with_cudnn = setenv("COEUS_CUDNN", "stand-in", 0);

}  // namespace
