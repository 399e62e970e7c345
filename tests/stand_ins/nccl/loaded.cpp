// SPDX-License-Identifier: Apache-2.0
// The stand-in for NCCL as a library that a program with the emulated GPU loads (COEUS_NCCL). Its version is
// COEUS_EMULATED_NCCL, such as 22809 for 2.28.9, by default 2.32.3. All ranks share a GPU if there are fewer
// GPUs than ranks (COEUS_EMULATED_GPUS).
#include "stand_ins/nccl/launch.hpp"

#include <cstdlib>
#include <cuda_runtime.h>

using namespace coeus::nccl;

namespace {

using namespace coeus::test;

const coeus::NcclLibrary& functions() {
    static const bool is_set_up = [] {
        const char* const version = std::getenv("COEUS_EMULATED_NCCL");
        nccl_stand_in_mode({.version = version ? std::atoi(version) : 23203, .bytes = int64_t(32) << 20});
        return true;
    }();
    (void)is_set_up;
    return nccl_functions();
}

// The first communicator is one of all ranks.
void set_up_world() {
    stand_in::set_up_stand_in();
    int ranks = 0, gpus = 0;
    MPI_Comm_size(stand_in::world, &ranks);
    cudaGetDeviceCount(&gpus);
    stand_in::mode.shared_gpu = gpus < ranks;
}

}  // namespace

extern "C" {

Result ncclGetVersion(int* version) {
    return functions().get_version(version);
}
Result ncclGetUniqueId(UniqueId* id) {
    return functions().get_unique_id(id);
}
Result ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank) {
    set_up_world();
    return functions().comm_init_rank(comm, ranks, id, rank);
}
Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
    set_up_world();
    return functions().comm_init_rank_config(comm, ranks, id, rank, config);
}
Result ncclCommInitRankScalable(Comm* comm, int ranks, int rank, int count, UniqueId* ids, Config* config) {
    set_up_world();
    return functions().comm_init_rank_scalable(comm, ranks, rank, count, ids, config);
}
Result ncclCommSplit(Comm parent, int color, int key, Comm* part, Config* config) {
    return functions().comm_split(parent, color, key, part, config);
}
Result ncclCommFinalize(Comm comm) {
    return functions().comm_finalize(comm);
}
Result ncclCommDestroy(Comm comm) {
    return functions().comm_destroy(comm);
}
Result ncclCommAbort(Comm comm) {
    return functions().comm_abort(comm);
}
Result ncclCommGetAsyncError(Comm comm, Result* error) {
    return functions().comm_get_async_error(comm, error);
}
const char* ncclGetErrorString(Result result) {
    return functions().get_error_string(result);
}
const char* ncclGetLastError(Comm comm) {
    return functions().get_last_error(comm);
}
Result ncclGroupStart() {
    return functions().group_start();
}
Result ncclGroupEnd() {
    return functions().group_end();
}
Result ncclAllReduce(const void* from, void* to, size_t count, DataType type, RedOp op, Comm comm,
                     Stream stream) {
    return functions().all_reduce(from, to, count, type, op, comm, stream);
}
Result ncclReduceScatter(const void* from, void* to, size_t received, DataType type, RedOp op, Comm comm,
                         Stream stream) {
    return functions().reduce_scatter(from, to, received, type, op, comm, stream);
}
Result ncclAllGather(const void* from, void* to, size_t sent, DataType type, Comm comm, Stream stream) {
    return functions().all_gather(from, to, sent, type, comm, stream);
}
Result ncclSend(const void* from, size_t count, DataType type, int peer, Comm comm, Stream stream) {
    return functions().send(from, count, type, peer, comm, stream);
}
Result ncclRecv(void* to, size_t count, DataType type, int peer, Comm comm, Stream stream) {
    return functions().receive(to, count, type, peer, comm, stream);
}
}
