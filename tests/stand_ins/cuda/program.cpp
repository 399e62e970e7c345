// SPDX-License-Identifier: Apache-2.0
// Tests start the program with the emulated GPU and its stand-ins for cuDNN and NCCL, unless the environment
// names others.
#include "support/paths.hpp"

#include <cstdlib>

namespace {

[[maybe_unused]] const int chosen = setenv("COEUS_TEST_PROGRAM",
                                           coeus::test::paths::emulated_program().c_str(), 0),
                           with_cudnn = setenv("COEUS_CUDNN", "stand-in", 0),
                           with_nccl = setenv("COEUS_NCCL", coeus::test::paths::nccl_emulated().c_str(), 0);

}  // namespace
