// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// Where the files are that tests use: those of the source and those of this build. The file paths.txt next
/// to the program names them (tests/paths.cmake), so that no program contains a path of this machine:
/// programs of the same sources are the same files in any folder (tools/compiler_cache.sh, tools/reach.py).
namespace coeus::test::paths {

std::string source();            ///< the folder of the repository
std::string program();           ///< build/coeus
std::string emulated_program();  ///< coeus with an emulated GPU
std::string cache();             ///< stands for the user's folder of caches
std::string mpirun();            ///< mpirun with the options that start more ranks than cores, as shell words

/// @name Libraries to preload into programs (tests/stand_ins)
/// @{
std::string naps();       ///< lets ranks that wait sleep
std::string exits();      ///< notes the exit codes of ranks
std::string counter();    ///< counts the MPI calls and opened files
std::string disk();       ///< gives a bad or full disk
std::string bad_reads();  ///< lets opens and reads fail at random
std::string hosts();      ///< sets the host name, and denies locks
/// @}

/// @name Stand-ins of NVIDIA's libraries
/// @{
std::string nvml();
std::string nccl();          ///< complete
std::string nccl_unsplit();  ///< from before ncclCommSplit
std::string nccl_old();      ///< older than Coeus needs
std::string nccl_partial();  ///< lacks a function
std::string nccl_shared();   ///< lets ranks share a GPU
/// One that works, for a program with the emulated GPU.
std::string nccl_emulated();
/// @}

}  // namespace coeus::test::paths
