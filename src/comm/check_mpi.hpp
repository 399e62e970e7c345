// SPDX-License-Identifier: Apache-2.0
// COEUS_CHECK_MPI checks the result of an MPI call; an error has the call's source text and MPI's message.
#pragma once

#include "coeus/base/error.hpp"

#include <mpi.h>

namespace coeus {

/// Throws SystemError with the call and MPI's error text.
[[noreturn]] void throw_mpi(const char* call, int code, std::source_location where);

inline void check_mpi(int code, const char* call,
                      std::source_location where = std::source_location::current()) {
    if (code != MPI_SUCCESS) [[unlikely]]
        throw_mpi(call, code, where);
}

}  // namespace coeus

#define COEUS_CHECK_MPI(call) ::coeus::check_mpi((call), #call)
