// SPDX-License-Identifier: Apache-2.0
// Checks our declarations of NCCL against the library's own; compiled if there is an nccl.h.
#include "coeus/comm/nccl.hpp"

#include <cstddef>
#include <nccl.h>
#include <type_traits>

namespace coeus {

namespace {

// Whether two types are passed in the same way: enumerations and numbers of one size, pointers, the id by
// value.
template <class Ours, class Theirs>
constexpr bool alike =
    sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_class_v<Ours> ==
        std::is_class_v<Theirs>&& std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;

template <class Ours, class Theirs>
constexpr bool called_alike = false;
template <class Ours, class... OurArguments, class Theirs, class... TheirArguments>
constexpr bool called_alike<Ours (*)(OurArguments...), Theirs (*)(TheirArguments...)> = [] {
    if constexpr (sizeof...(OurArguments) == sizeof...(TheirArguments))
        return (alike<Ours, Theirs> && ... && alike<OurArguments, TheirArguments>);
    else
        return false;
}();

#define CALLED_ALIKE(ours, theirs) \
    static_assert(called_alike<decltype(NcclLibrary::ours), decltype(&theirs)>, #theirs)
CALLED_ALIKE(get_version, ncclGetVersion);
CALLED_ALIKE(get_unique_id, ncclGetUniqueId);
CALLED_ALIKE(comm_init_rank, ncclCommInitRank);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
CALLED_ALIKE(comm_init_rank_config, ncclCommInitRankConfig);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
CALLED_ALIKE(comm_init_rank_scalable, ncclCommInitRankScalable);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
#define SAME_PLACE(ours, theirs)                                                    \
    static_assert(offsetof(nccl::Config, ours) == offsetof(ncclConfig_t, theirs) && \
                      sizeof(nccl::Config::ours) == sizeof(ncclConfig_t::theirs),   \
                  #theirs)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
constexpr ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
static_assert(initial.magic == nccl::Config().magic && initial.maxCTAs == nccl::Config().max_ctas &&
              initial.netName == nullptr && initial.version >= nccl::Config().version);
CALLED_ALIKE(comm_split, ncclCommSplit);
static_assert(nccl::no_color == NCCL_SPLIT_NOCOLOR);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
CALLED_ALIKE(comm_finalize, ncclCommFinalize);
#endif
CALLED_ALIKE(comm_destroy, ncclCommDestroy);
CALLED_ALIKE(comm_abort, ncclCommAbort);
CALLED_ALIKE(comm_get_async_error, ncclCommGetAsyncError);
CALLED_ALIKE(get_error_string, ncclGetErrorString);
CALLED_ALIKE(get_last_error, ncclGetLastError);
CALLED_ALIKE(group_start, ncclGroupStart);
CALLED_ALIKE(group_end, ncclGroupEnd);
CALLED_ALIKE(all_reduce, ncclAllReduce);
CALLED_ALIKE(reduce_scatter, ncclReduceScatter);
CALLED_ALIKE(all_gather, ncclAllGather);
CALLED_ALIKE(send, ncclSend);
CALLED_ALIKE(receive, ncclRecv);

#define SAME_VALUE(ours, theirs) static_assert(int(nccl::ours) == int(theirs), #theirs)
SAME_VALUE(Result::success, ncclSuccess);
SAME_VALUE(Result::unhandled_cuda_error, ncclUnhandledCudaError);
SAME_VALUE(Result::system_error, ncclSystemError);
SAME_VALUE(Result::internal_error, ncclInternalError);
SAME_VALUE(Result::invalid_argument, ncclInvalidArgument);
SAME_VALUE(Result::invalid_usage, ncclInvalidUsage);
SAME_VALUE(Result::remote_error, ncclRemoteError);
SAME_VALUE(Result::in_progress, ncclInProgress);
SAME_VALUE(DataType::uint8, ncclUint8);
SAME_VALUE(DataType::int32, ncclInt32);
SAME_VALUE(DataType::int64, ncclInt64);
SAME_VALUE(DataType::float32, ncclFloat32);
SAME_VALUE(DataType::float64, ncclFloat64);
SAME_VALUE(DataType::bfloat16, ncclBfloat16);
SAME_VALUE(RedOp::sum, ncclSum);
static_assert(sizeof(nccl::UniqueId) == NCCL_UNIQUE_ID_BYTES);

}  // namespace

}  // namespace coeus
