// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace coeus {

/// The name of MPI's launcher if it started this process itself: "mpirun", "orted". "" if something else did,
/// for example a shell or srun.
std::string launcher_name();

/// True if mpirun started this process itself, and started all of its processes with the same command. False
/// if a shell that mpirun started did, since it may give each process other work.
bool is_one_of_mpiruns();

}  // namespace coeus
