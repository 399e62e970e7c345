// SPDX-License-Identifier: Apache-2.0
// NCCL, loaded at run time: declares the few functions that Coeus uses, so that neither nccl.h nor the
// library is needed to build.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace coeus {

/// Names and values as in nccl.h, without the prefixes.
namespace nccl {

struct UniqueId {
    char internal[128];
};
using Comm = struct OpaqueComm*;
using Stream = void*;  ///< the value of Queue::native()
enum class Result : int {
    success,
    unhandled_cuda_error,
    system_error,
    internal_error,
    invalid_argument,
    invalid_usage,
    remote_error,
    in_progress
};
enum class DataType : int { uint8 = 1, int32 = 2, int64 = 4, float32 = 7, float64 = 8, bfloat16 = 9 };
enum class RedOp : int { sum = 0, max = 2 };
constexpr int no_color = -1;  ///< for a rank that is in no part of a split

/// The members of ncclConfig_t as of 2.18. `size` and `version` tell newer libraries that later members are
/// missing, and older ones ignore what they do not know.
struct Config {
    static constexpr int undefined = std::numeric_limits<int>::min();  ///< NCCL chooses

    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef, version = 21800;
    int blocking = undefined, cga_cluster_size = undefined, min_ctas = undefined,
        max_ctas = undefined;  ///< most blocks of an operation; from 2.17 on
    const char* net_name = nullptr;
    int split_share = undefined;
};
constexpr int first_with_max_ctas = 21700;

}  // namespace nccl

struct NcclLibrary {
    using Result = nccl::Result;

    Result (*get_version)(int* version) = nullptr;
    Result (*get_unique_id)(nccl::UniqueId* id) = nullptr;
    Result (*comm_init_rank)(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) = nullptr;
    /// Available from NCCL 2.14 on, else null.
    Result (*comm_init_rank_config)(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                    nccl::Config* config) = nullptr;
    /// With several ids, each for equally many ranks in a row, as far as possible. Available from NCCL 2.23
    /// on, else null. `config` null: NCCL chooses.
    Result (*comm_init_rank_scalable)(nccl::Comm* comm, int ranks, int rank, int count, nccl::UniqueId* ids,
                                      nccl::Config* config) = nullptr;
    /// Available from NCCL 2.18 on, else null. `config` null: the same as the parent's.
    Result (*comm_split)(nccl::Comm parent, int color, int key, nccl::Comm* part,
                         nccl::Config* config) = nullptr;
    /// Waits for the work of all ranks; then only comm_destroy may follow. Available from NCCL 2.14 on, else
    /// null: comm_destroy waits too.
    Result (*comm_finalize)(nccl::Comm comm) = nullptr;
    Result (*comm_destroy)(nccl::Comm comm) = nullptr;
    Result (*comm_abort)(nccl::Comm comm) = nullptr;
    Result (*comm_get_async_error)(nccl::Comm comm, Result* error) = nullptr;
    const char* (*get_error_string)(Result result) = nullptr;
    const char* (*get_last_error)(nccl::Comm comm) = nullptr;
    Result (*group_start)() = nullptr;
    Result (*group_end)() = nullptr;
    Result (*all_reduce)(const void* from, void* to, size_t count, nccl::DataType type, nccl::RedOp op,
                         nccl::Comm comm, nccl::Stream stream) = nullptr;
    Result (*reduce_scatter)(const void* from, void* to, size_t received, nccl::DataType type, nccl::RedOp op,
                             nccl::Comm comm, nccl::Stream stream) = nullptr;
    Result (*all_gather)(const void* from, void* to, size_t sent, nccl::DataType type, nccl::Comm comm,
                         nccl::Stream stream) = nullptr;
    Result (*send)(const void* from, size_t count, nccl::DataType type, int peer, nccl::Comm comm,
                   nccl::Stream stream) = nullptr;
    Result (*receive)(void* to, size_t count, nccl::DataType type, int peer, nccl::Comm comm,
                      nccl::Stream stream) = nullptr;

    /// As NCCL numbers it: 22809 for 2.28.9; 0 if it is unknown.
    int version() const;
    /// "2.28.9"
    std::string version_text() const;
};

/// "2.28.9" for 22809; versions up to 2.8.4 have a shorter number.
std::string nccl_version_text(int version);

/// Path of the NCCL library: the environment variable COEUS_NCCL, else "libnccl.so.2" in the system or in the
/// active Python environment.
std::string nccl_path();
/// Loads the library for the rest of the process. ConfigError with the reason if it cannot be used: it is not
/// found, it is not NCCL, or it is older than 2.13.
NcclLibrary load_nccl(const std::string& path = nccl_path());

}  // namespace coeus
