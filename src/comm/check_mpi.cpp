// SPDX-License-Identifier: Apache-2.0
#include "check_mpi.hpp"

#include <string_view>

namespace coeus {

void throw_mpi(const char* call, int code, std::source_location where) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0, rank = 0;
    MPI_Error_string(code, text, &length);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char host[MPI_MAX_PROCESSOR_NAME];
    int host_length = 0;
    MPI_Get_processor_name(host, &host_length);
    throw SystemError(
        fmt::format("{} failed on rank {} ({}): {}", call, rank, std::string_view(host, size_t(host_length)),
                    std::string_view(text, size_t(length))),
        where);
}

}  // namespace coeus
