// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/base/shared_library.hpp"
#include "coeus/comm/nccl.hpp"

#include <cstdlib>

namespace coeus {

namespace {

constexpr int oldest = 21300;  // the first version with ncclGetLastError

std::string text_of(int version) {
    const int thousand = version >= 10000 ? 100 : 10;  // up to 2.8.4 the code was 2804
    return fmt::format("{}.{}.{}", version / (100 * thousand), version / 100 % thousand, version % 100);
}

}  // namespace

std::string NcclLibrary::version_text() const {
    int version = 0;
    return get_version(&version) == Result::success ? text_of(version) : "of unknown version";
}

std::string nccl_path() {
    return first_loadable(library_paths("COEUS_NCCL", "libnccl.so.2", "nvidia/nccl/lib"));
}

NcclLibrary load_nccl(const std::string& path) {
    // if NCCL can (from 2.26 on), operations of several communicators that share the GPU run on all ranks in
    // the order in which they were submitted, also within a graph
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    const SharedLibrary library(path, "NCCL", "2.13 or newer");
    NcclLibrary nccl;
    const auto find = [&](const char* name, auto*& function) { library.find(name, function); };
    find("ncclGetVersion", nccl.get_version);
    int version = 0;
    if (nccl.get_version(&version) != nccl::Result::success || version < oldest)
        throw ConfigError("{} is NCCL {}; 2.13 or newer is needed", path, text_of(version));
    find("ncclGetUniqueId", nccl.get_unique_id);
    find("ncclCommInitRank", nccl.comm_init_rank);
    library.find_optional("ncclCommSplit", nccl.comm_split);
    find("ncclCommDestroy", nccl.comm_destroy);
    find("ncclCommAbort", nccl.comm_abort);
    find("ncclCommGetAsyncError", nccl.comm_get_async_error);
    find("ncclGetErrorString", nccl.get_error_string);
    find("ncclGetLastError", nccl.get_last_error);
    find("ncclGroupStart", nccl.group_start);
    find("ncclGroupEnd", nccl.group_end);
    find("ncclAllReduce", nccl.all_reduce);
    find("ncclReduceScatter", nccl.reduce_scatter);
    find("ncclAllGather", nccl.all_gather);
    find("ncclSend", nccl.send);
    find("ncclRecv", nccl.receive);
    return nccl;
}

}  // namespace coeus
