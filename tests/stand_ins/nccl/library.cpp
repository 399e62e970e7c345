// SPDX-License-Identifier: Apache-2.0
// A library with the names of NCCL's functions and the version STAND_IN_VERSION that does nothing else, for
// tests of loading. With STAND_IN_WITHOUT_SEND one name is missing.
#define STAND_IN(name)      \
    extern "C" int name() { \
        return 1;           \
    }

extern "C" int ncclGetVersion(int* version) {
    *version = STAND_IN_VERSION;
    return 0;
}
STAND_IN(ncclGetUniqueId)
STAND_IN(ncclCommInitRank)
#if STAND_IN_VERSION >= 21400
STAND_IN(ncclCommInitRankConfig)
#endif
#if STAND_IN_VERSION >= 22300
STAND_IN(ncclCommInitRankScalable)
#endif
#if STAND_IN_VERSION >= 21800
STAND_IN(ncclCommSplit)
#endif
#if STAND_IN_VERSION >= 21400
STAND_IN(ncclCommFinalize)
#endif
STAND_IN(ncclCommDestroy)
STAND_IN(ncclCommAbort)
STAND_IN(ncclCommGetAsyncError)
STAND_IN(ncclGetErrorString)
STAND_IN(ncclGetLastError)
STAND_IN(ncclGroupStart)
STAND_IN(ncclGroupEnd)
STAND_IN(ncclAllReduce)
STAND_IN(ncclReduceScatter)
STAND_IN(ncclAllGather)
#ifndef STAND_IN_WITHOUT_SEND
STAND_IN(ncclSend)
#endif
STAND_IN(ncclRecv)
