// SPDX-License-Identifier: Apache-2.0
// A library to preload (LD_PRELOAD) into a run on several ranks. It counts each process's calls of MPI
// (through its profiling interface, MPI 3.1 section 14.2) and of the file system for files below
// $COEUS_COUNT_BELOW. At MPI_Finalize each rank writes lines "name value" to $COEUS_COUNT_TO.<rank>.
#include <mpi.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <utility>

namespace {

std::atomic<int64_t> communicators = 0;  // number made
std::atomic<int64_t> collectives = 0;
std::atomic<int64_t> collective_bytes = 0;  // that this rank has after them
std::atomic<int64_t> messages = 0, message_bytes = 0;
std::atomic<int64_t> files_opened = 0, bytes_read = 0;
// the watchdog's checks for news of other hosts; their number depends on the time, not on the files
std::atomic<int64_t> looks = 0;
std::array<std::atomic<bool>, 4096> is_counted;  // by descriptor
std::atomic<int64_t> bytes_held = 0;             // by C++ objects (MPI and HDF5 are C)
std::atomic<int64_t> bytes_held_at_last_collective = 0;

int64_t size_of(int64_t count, MPI_Datatype type, MPI_Comm comm = MPI_COMM_NULL) {
    int bytes = 0, ranks = 1;
    MPI_Type_size(type, &bytes);
    if (comm != MPI_COMM_NULL) MPI_Comm_size(comm, &ranks);
    return count * bytes * ranks;
}

void note_collective(int64_t bytes) {
    ++collectives;
    collective_bytes += bytes;
    bytes_held_at_last_collective = bytes_held.load();
}

void note_message(int64_t count, MPI_Datatype type) {
    ++messages;
    message_bytes += size_of(count, type);
}

template <class Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int note_opened(const char* path, int descriptor) {
    static const char* const below = std::getenv("COEUS_COUNT_BELOW");
    if (descriptor < 0 || descriptor >= int(is_counted.size())) return descriptor;
    const bool counts = below != nullptr && std::strncmp(path, below, std::strlen(below)) == 0;
    is_counted[size_t(descriptor)] = counts;
    const char* const name = std::strrchr(path, '/');
    const bool is_look = name != nullptr && std::strcmp(name, "/events") == 0;
    if (counts) ++(is_look ? looks : files_opened);
    return descriptor;
}

// A later socket may get the same number.
void note_closed(int descriptor) {
    if (descriptor >= 0 && descriptor < int(is_counted.size())) is_counted[size_t(descriptor)] = false;
}

ssize_t note_read(int descriptor, ssize_t bytes) {
    if (bytes > 0 && descriptor >= 0 && descriptor < int(is_counted.size()) && is_counted[size_t(descriptor)])
        bytes_read += bytes;
    return bytes;
}

int mode_of(int flags, va_list arguments) {
    return (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
}

void write_counts() {
    const char* to = std::getenv("COEUS_COUNT_TO");
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (to == nullptr) return;
    const std::array counts = {std::pair("communicators", communicators.load()),
                               std::pair("collectives", collectives.load()),
                               std::pair("collective_bytes", collective_bytes.load()),
                               std::pair("messages", messages.load()),
                               std::pair("message_bytes", message_bytes.load()),
                               std::pair("files_opened", files_opened.load()),
                               std::pair("looks", looks.load()),
                               std::pair("bytes_read", bytes_read.load()),
                               std::pair("bytes_held", bytes_held_at_last_collective.load())};
    char path[4096];
    std::snprintf(path, sizeof path, "%s.%d", to, rank);
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) return;
    for (const auto& [name, count] : counts) std::fprintf(file, "%s %lld\n", name, (long long)count);
    std::fclose(file);
}

// The size of each object is stored in front of it, in as many bytes as its alignment. Only the main thread
// is counted, since the short-lived objects of other threads differ from run to run.
void* allocate(size_t bytes, size_t alignment = 16) {
    void* const place = std::aligned_alloc(alignment, (bytes / alignment + 2) * alignment);
    if (place == nullptr) throw std::bad_alloc();
    std::memcpy(place, &bytes, sizeof bytes);
    if (gettid() == getpid()) bytes_held += int64_t(bytes);
    return static_cast<char*>(place) + alignment;
}

void release(void* object, size_t alignment = 16) {
    if (object == nullptr) return;
    void* const place = static_cast<char*>(object) - alignment;
    size_t bytes = 0;
    std::memcpy(&bytes, place, sizeof bytes);
    if (gettid() == getpid()) bytes_held -= int64_t(bytes);
    std::free(place);
}

}  // namespace

void* operator new(size_t bytes) {
    return allocate(bytes);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, size_t(alignment));
}
void operator delete(void* object) noexcept {
    release(object);
}
void operator delete(void* object, size_t) noexcept {
    release(object);
}
void operator delete(void* object, std::align_val_t alignment) noexcept {
    release(object, size_t(alignment));
}
void operator delete(void* object, size_t, std::align_val_t alignment) noexcept {
    release(object, size_t(alignment));
}

extern "C" {

int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = mode_of(flags, arguments);
    va_end(arguments);
    static const auto real = next<int (*)(const char*, int, ...)>("open");
    return note_opened(path, real(path, flags, mode));
}
int open64(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = mode_of(flags, arguments);
    va_end(arguments);
    static const auto real = next<int (*)(const char*, int, ...)>("open64");
    return note_opened(path, real(path, flags, mode));
}
std::FILE* fopen(const char* path, const char* mode) {
    static const auto real = next<std::FILE* (*)(const char*, const char*)>("fopen");
    std::FILE* const file = real(path, mode);
    if (file != nullptr) note_opened(path, fileno(file));
    return file;
}
std::FILE* fopen64(const char* path, const char* mode) {
    static const auto real = next<std::FILE* (*)(const char*, const char*)>("fopen64");
    std::FILE* const file = real(path, mode);
    if (file != nullptr) note_opened(path, fileno(file));
    return file;
}
int close(int descriptor) {
    note_closed(descriptor);
    static const auto real = next<int (*)(int)>("close");
    return real(descriptor);
}
int fclose(std::FILE* file) {
    note_closed(fileno(file));
    static const auto real = next<int (*)(std::FILE*)>("fclose");
    return real(file);
}
ssize_t read(int descriptor, void* to, size_t bytes) {
    static const auto real = next<ssize_t (*)(int, void*, size_t)>("read");
    return note_read(descriptor, real(descriptor, to, bytes));
}
ssize_t pread(int descriptor, void* to, size_t bytes, off_t at) {
    static const auto real = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
    return note_read(descriptor, real(descriptor, to, bytes, at));
}
ssize_t pread64(int descriptor, void* to, size_t bytes, off64_t at) {
    static const auto real = next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64");
    return note_read(descriptor, real(descriptor, to, bytes, at));
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
    ++communicators;
    return PMPI_Comm_dup(comm, made);
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
    ++communicators;
    return PMPI_Comm_split(comm, color, key, made);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
    ++communicators;
    return PMPI_Comm_split_type(comm, type, key, info, made);
}
int MPI_Barrier(MPI_Comm comm) {
    note_collective(0);
    return PMPI_Barrier(comm);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
    note_collective(0);
    return PMPI_Ibarrier(comm, request);
}
int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
    note_collective(size_of(n, type));
    return PMPI_Bcast(data, n, type, root, comm);
}
int MPI_Allreduce(const void* data, void* result, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    note_collective(size_of(n, type));
    return PMPI_Allreduce(data, result, n, type, op, comm);
}
int MPI_Allgather(const void* data, int n, MPI_Datatype type, void* all, int m, MPI_Datatype other,
                  MPI_Comm comm) {
    note_collective(size_of(m, other, comm));
    return PMPI_Allgather(data, n, type, all, m, other, comm);
}
int MPI_Igather(const void* data, int n, MPI_Datatype type, void* all, int m, MPI_Datatype other, int root,
                MPI_Comm comm, MPI_Request* request) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    note_collective(rank == root ? size_of(m, other, comm) : 0);
    return PMPI_Igather(data, n, type, all, m, other, root, comm, request);
}
int MPI_Send(const void* data, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
    note_message(n, type);
    return PMPI_Send(data, n, type, peer, tag, comm);
}
int MPI_Isend(const void* data, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
    note_message(n, type);
    return PMPI_Isend(data, n, type, peer, tag, comm, request);
}
int MPI_Sendrecv(const void* out, int n, MPI_Datatype type, int to, int tag, void* in, int m,
                 MPI_Datatype other, int from, int tag_in, MPI_Comm comm, MPI_Status* status) {
    note_message(n, type);
    return PMPI_Sendrecv(out, n, type, to, tag, in, m, other, from, tag_in, comm, status);
}
int MPI_Finalize() {
    write_counts();
    return PMPI_Finalize();
}
}
