// SPDX-License-Identifier: Apache-2.0
// The MPI of a test program that runs on several ranks.
#pragma once

#include "coeus/comm/mpi.hpp"

namespace coeus::test {

/// Only while cases run.
const MpiRuntime& mpi_runtime();

}  // namespace coeus::test
