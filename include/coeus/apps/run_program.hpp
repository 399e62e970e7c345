// SPDX-License-Identifier: Apache-2.0
// The whole program as a function, for programs that add something to it, such as a model family.
#pragma once

#include "coeus/base/function_ref.hpp"

namespace coeus {

/// Runs `coeus argv[1] argv[2] ...` and returns the exit code (base/error.hpp). Call it once, from main().
/// Errors are logged and do not leave it.
int run_program(int argc, char** argv);
/// Calls set_up() first, for instance to register model families. Its errors are logged like any others.
int run_program(int argc, char** argv, FunctionRef<void()> set_up);

}  // namespace coeus
