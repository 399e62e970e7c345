// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace coeus {

/// The name of MPI's launcher if it started this process itself: "mpirun", "orted". "" if something else did,
/// for example a shell or srun.
std::string launcher_name();

}  // namespace coeus
