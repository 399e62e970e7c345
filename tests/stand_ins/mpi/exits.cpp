// SPDX-License-Identifier: Apache-2.0
// A library to preload into a run on several ranks. Each rank that has finalised MPI writes a file with its
// exit code and the number of ranks, "0 4", to the folder COEUS_RANK_EXITS. tests/support/ranks_ended.sh
// reads them.
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

namespace {

const char* variable(const char* of_open_mpi, const char* of_mpich) {
    const char* value = std::getenv(of_open_mpi);
    return value ? value : std::getenv(of_mpich);
}

void note_exit(int code, void*) {
    const char *folder = std::getenv("COEUS_RANK_EXITS"),
               *rank = variable("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
               *ranks = variable("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
    if (!folder || !rank || !ranks) return;
    mkdir(folder, 0777);  // it may exist
    std::array<char, 4096> path = {};
    std::snprintf(path.data(), path.size(), "%s/%s", folder, rank);
    std::FILE* const file = std::fopen(path.data(), "w");
    if (!file) return;
    std::fprintf(file, "%d %s\n", code, ranks);
    std::fclose(file);
}

}  // namespace

extern "C" int MPI_Finalize() {
    const auto real = reinterpret_cast<int (*)()>(dlsym(RTLD_NEXT, "MPI_Finalize"));
    const int result = real ? real() : 1;
    if (result != 0) return result;
    // mpirun may end a rank between here and its exit
    note_exit(0, nullptr);
    on_exit(note_exit, nullptr);
    return result;
}
