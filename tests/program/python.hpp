// SPDX-License-Identifier: Apache-2.0
// A Python with a library that a test compares with, if there is one.
#pragma once

#include <string>

namespace coeus::test {

/// $COEUS_<NAME>_PYTHON (for "tensorboard" COEUS_TENSORBOARD_PYTHON), or bin/python of the virtual
/// environment venv-<name> next to the built program; "" if there is none.
std::string python_with(const std::string& name);

}  // namespace coeus::test
