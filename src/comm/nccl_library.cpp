// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/base/shared_library.hpp"
#include "coeus/comm/nccl.hpp"

namespace coeus {

namespace {

constexpr int oldest = 21300;  // the first version with ncclGetLastError

}  // namespace

std::string nccl_version_text(int version) {
    const int thousand = version >= 10000 ? 100 : 10;  // up to 2.8.4 the code was 2804
    return fmt::format("{}.{}.{}", version / (100 * thousand), version / 100 % thousand, version % 100);
}

int NcclLibrary::version() const {
    int version = 0;
    return get_version(&version) == Result::success ? version : 0;
}

std::string NcclLibrary::version_text() const {
    const int known = version();
    return known ? nccl_version_text(known) : "of unknown version";
}

std::string nccl_path() {
    return first_loadable(library_paths("COEUS_NCCL", "libnccl.so.2", "nvidia/nccl/lib"));
}

NcclLibrary load_nccl(const std::string& path) {
    const SharedLibrary library(path, "NCCL", "2.13 or newer");
    NcclLibrary nccl;
    library.find("ncclGetVersion", nccl.get_version);
    if (nccl.version() < oldest)
        throw ConfigError("{} is NCCL {}; 2.13 or newer is needed", path, nccl.version_text());
    library.find("ncclGetUniqueId", nccl.get_unique_id);
    library.find("ncclCommInitRank", nccl.comm_init_rank);
    library.find_optional("ncclCommInitRankConfig", nccl.comm_init_rank_config);
    library.find_optional("ncclCommInitRankScalable", nccl.comm_init_rank_scalable);
    library.find_optional("ncclCommSplit", nccl.comm_split);
    library.find_optional("ncclCommFinalize", nccl.comm_finalize);
    library.find("ncclCommDestroy", nccl.comm_destroy);
    library.find("ncclCommAbort", nccl.comm_abort);
    library.find("ncclCommGetAsyncError", nccl.comm_get_async_error);
    library.find("ncclGetErrorString", nccl.get_error_string);
    library.find("ncclGetLastError", nccl.get_last_error);
    library.find("ncclGroupStart", nccl.group_start);
    library.find("ncclGroupEnd", nccl.group_end);
    library.find("ncclAllReduce", nccl.all_reduce);
    library.find("ncclReduceScatter", nccl.reduce_scatter);
    library.find("ncclAllGather", nccl.all_gather);
    library.find("ncclSend", nccl.send);
    library.find("ncclRecv", nccl.receive);
    return nccl;
}

}  // namespace coeus
