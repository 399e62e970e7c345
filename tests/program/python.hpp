// SPDX-License-Identifier: Apache-2.0
// A Python with a library that a test compares with, where somebody has made one.
#pragma once

#include <string>

namespace coeus::test {

/// $COEUS_<NAME>_PYTHON (for "tensorboard" COEUS_TENSORBOARD_PYTHON), or bin/python of the virtual
/// environment venv-<name> beside the built program; "" where there is none.
std::string python_with(const std::string& name);

}  // namespace coeus::test
