// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/nccl/nccl.hpp"

#include "coeus/comm/nccl_environment.hpp"
#include "stand_ins/nccl/launch.hpp"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace coeus::test {

namespace {

using namespace nccl;
using namespace stand_in;

std::set<Comm> live;
int made = 0, aborted = 0, messages = 0, splits = 0, ids_used = 1;
std::atomic<bool> starts_are_held = false;
std::atomic<int> starts_held = 0;
Result next_failure = Result::success, state = Result::success;
std::string last_error;
thread_local int depth = 0;
thread_local std::shared_ptr<Launch> group;
thread_local Result group_failure = Result::success;  // its first failure: then nothing of the group begins

Result misuse(const std::string& why) {
    last_error = why;
    if (depth > 0 && group_failure == Result::success) group_failure = Result::invalid_usage;
    return Result::invalid_usage;
}

// Whether one of two messages is received where the other one's data are.
bool overlap(const Call& a, const Call& b) {
    if (a.header.kind != Kind::message || b.header.kind != Kind::message || (a.sends && b.sends))
        return false;
    const auto data = [](const Call& call) { return call.sends ? call.from : call.to; };
    return data(a) < data(b) + sent_bytes(b) && data(b) < data(a) + sent_bytes(a);
}

// Gives a call that is legal on its own: alone, or within the thread's group.
Result give(Comm comm, Stream stream, Call call) {
    if (!live.contains(comm) || comm->finalized) return misuse("the communicator is not one");
    if (group_failure != Result::success) return group_failure;
    if (next_failure != Result::success) {
        last_error = "injected by the test";
        if (depth > 0) group_failure = next_failure;
        return std::exchange(next_failure, Result::success);
    }
    if (call.header.kind == Kind::message) {
        if (depth == 0) return misuse("a message outside of a group");
        if (call.peer < 0 || call.peer >= int(comm->world_ranks.size())) return misuse("no such peer");
    }
    auto target = depth > 0 ? group : nullptr;
    if (!target) target = std::make_shared<Launch>();
    if (target->comm && (target->comm != comm || target->stream != stream))
        return misuse("a group has calls of several communicators or streams");
    if (std::ranges::any_of(target->calls, [&](const Call& other) { return overlap(call, other); }))
        return misuse("messages of a group overlap");
    if (call.header.kind == Kind::message) ++messages;
    target->comm = comm;
    target->stream = static_cast<coeus_emulated_stream*>(stream);
    target->calls.push_back(std::move(call));
    if (depth == 0) return launch(*target);
    group = target;
    return Result::success;
}

// Whether the operands of a collective are in place (the smaller one is this rank's part of the larger one)
// or do not overlap.
bool in_place_or_apart(const void* small, const void* large, int64_t bytes, int64_t ranks, int64_t rank) {
    const auto *s = static_cast<const std::byte*>(small), *l = static_cast<const std::byte*>(large);
    return s == l + rank * bytes || s + bytes <= l || l + ranks * bytes <= s;
}

Call collective(Kind kind, const void* from, void* to, size_t count, DataType type) {
    return {.header = {kind, 0, int64_t(count), type},
            .from = static_cast<const std::byte*>(from),
            .to = static_cast<std::byte*>(to)};
}

Result get_version(int* version) {
    *version = mode.version;
    return Result::success;
}

// The id contains a number and the rank where the others meet.
Result get_unique_id(UniqueId* id) {
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int number[2] = {made++ * size + rank, rank};
    std::memcpy(id->internal, number, sizeof number);
    return Result::success;
}

bool is_set(const char* variable) {
    const char* const value = std::getenv(variable);
    return value && std::atoi(value) == 1;
}

// NCCL's rules for ranks that share a GPU (its documentation of NCCL_MULTI_RANK_GPU_ENABLE); "" if none is
// broken.
std::string refusal_of_shared_gpu() {
    if (!mode.shared_gpu) return "";
    if (mode.version < coeus::first_nccl_with_shared_gpus) return "Duplicate GPU detected";
    if (!is_set("NCCL_MULTI_RANK_GPU_ENABLE")) return "Multiple Ranks are using the same GPU/Partition";
    return is_set("NCCL_NVLS_ENABLE") ? "NCCL_NVLS_ENABLE=1, and multiple ranks use the same device" : "";
}

// A communicator starts with `ranks` ranks in all its parts, which allocate on the same GPU if they share
// one.
Comm started(std::unique_ptr<OpaqueComm> comm, int64_t ranks) {
    comm->bytes = mode.bytes * (mode.shared_gpu ? ranks : 1);
    emulation::bytes_of_libraries += size_t(comm->bytes);
    live.insert(comm.get());
    return comm.release();
}

// Every rank sends the first one its rank in the world, and receives those of all.
Result comm_init_rank(Comm* comm, int ranks, UniqueId id, int rank) {
    if (const std::string why = refusal_of_shared_gpu(); !why.empty()) return misuse(why);
    ++starts_held;
    while (starts_are_held) std::this_thread::yield();
    --starts_held;
    int number[2];
    std::memcpy(number, id.internal, sizeof number);
    const int tag = number[0] * 2048 + 2047;  // a tag that no call has: theirs end below it
    auto made_now = std::make_unique<OpaqueComm>();
    made_now->id = number[0];
    made_now->rank = rank;
    made_now->world_ranks.resize(size_t(ranks));
    MPI_Request request;
    MPI_Isend(&rank, 1, MPI_INT, number[1], tag, world, &request);
    int own = 0;
    MPI_Comm_rank(world, &own);
    if (own == number[1]) {
        std::vector<int>& all = made_now->world_ranks;
        for (int i = 0; i < ranks; ++i) {
            int its = 0;
            MPI_Status from;
            MPI_Recv(&its, 1, MPI_INT, MPI_ANY_SOURCE, tag, world, &from);
            all[size_t(its)] = from.MPI_SOURCE;
        }
        for (const int other : all)
            if (other != own) MPI_Send(all.data(), ranks, MPI_INT, other, tag, world);
    } else {
        MPI_Recv(made_now->world_ranks.data(), ranks, MPI_INT, number[1], tag, world, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    *comm = started(std::move(made_now), ranks);
    return Result::success;
}

int max_ctas_of(const Config* config) {
    return config && config->max_ctas != Config::undefined ? config->max_ctas : 0;
}

bool is_valid(const Config& config) {
    return config.size == sizeof(Config) && config.magic == 0xcafebeef && config.version == 21800 &&
           (config.max_ctas == Config::undefined || config.max_ctas > 0);
}

Result comm_init_rank_config(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
    if (!is_valid(*config)) return misuse("the configuration is not one");
    const Result result = comm_init_rank(comm, ranks, id, rank);
    if (result == Result::success) (*comm)->max_ctas = max_ctas_of(config);
    return result;
}

// The ranks meet by the first id; each must come from the first rank of its part.
Result comm_init_rank_scalable(Comm* comm, int ranks, int rank, int count, UniqueId* ids, Config* config) {
    if (count < 1 || count > ranks || (config && !is_valid(*config))) return misuse("not so many ids");
    ids_used = count;
    const Result result = comm_init_rank(comm, ranks, ids[0], rank);
    if (result != Result::success) return result;
    for (int id = 0; id < count; ++id) {
        int number[2];
        std::memcpy(number, ids[id].internal, sizeof number);
        const int first = id * (ranks / count) + std::min(id, ranks % count);
        if (number[1] != (*comm)->world_ranks[size_t(first)]) return misuse("an id of another rank");
    }
    (*comm)->max_ctas = max_ctas_of(config);
    return result;
}

// Every rank of the parent sends every other its colour and a proposed id. The new communicator uses the id
// that its first rank proposed.
Result comm_split(Comm parent, int color, int key, Comm* part, Config* config) {
    if (!live.contains(parent) || parent->finalized) return misuse("the communicator is not one");
    if (config && !is_valid(*config)) return misuse("the configuration is not one");
    struct Place {
        int color, key, id, rank;
    };
    Place own = {color, key, 0, 0};
    int size = 0;
    MPI_Comm_rank(world, &own.rank);
    MPI_Comm_size(world, &size);
    own.id = made++ * size + own.rank;
    const int tag = parent->id * 2048 + 1023;  // as above
    std::vector<MPI_Request> requests;
    std::vector<Place> places(parent->world_ranks.size()), together;
    for (size_t i = 0; i < places.size(); ++i) {
        const int other = parent->world_ranks[i];
        MPI_Irecv(&places[i], sizeof(Place), MPI_BYTE, other, tag, world, &requests.emplace_back());
        MPI_Isend(&own, sizeof(Place), MPI_BYTE, other, tag, world, &requests.emplace_back());
    }
    MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    ++splits;
    *part = nullptr;
    if (color == no_color) return Result::success;
    for (const Place& place : places)
        if (place.color == color) together.push_back(place);
    std::ranges::stable_sort(together, {}, &Place::key);
    auto made_now = std::make_unique<OpaqueComm>();
    made_now->id = together.front().id;
    made_now->max_ctas = config ? max_ctas_of(config) : parent->max_ctas;
    for (const Place& place : together) {
        if (place.rank == own.rank) made_now->rank = int(made_now->world_ranks.size());
        made_now->world_ranks.push_back(place.rank);
    }
    *part =
        started(std::move(made_now),
                std::ranges::count_if(places, [](const Place& place) { return place.color != no_color; }));
    return Result::success;
}

Result comm_finalize(Comm comm) {
    if (!live.contains(comm)) return misuse("the communicator is not one");
    if (comm->given != comm->done) return misuse("the communicator has work left");
    if (std::exchange(comm->finalized, true)) return misuse("the communicator was finalized before");
    return Result::success;
}

Result comm_destroy(Comm comm) {
    if (comm->kept > 0) return misuse("a graph has operations of the communicator: this would wait for good");
    if (live.erase(comm) == 0) return misuse("the communicator is not one");
    if (comm->given != comm->done) return misuse("the communicator has work left");
    emulation::bytes_of_libraries -= size_t(comm->bytes);
    delete comm;
    return Result::success;
}

Result comm_abort(Comm comm) {
    if (comm->kept > 0) return misuse("a graph has operations of the communicator: this would wait for good");
    ++aborted;
    if (live.contains(comm)) {
        comm->aborted = true;  // its pending work refers to it
        emulation::bytes_of_libraries -= size_t(comm->bytes);
    }
    forget(comm);
    return live.erase(comm) > 0 ? Result::success : misuse("the communicator is not one");
}

Result comm_get_async_error(Comm comm, Result* error) {
    *error = state;
    if (state != Result::success) last_error = "a rank is gone";
    return live.contains(comm) ? Result::success : misuse("the communicator is not one");
}

const char* get_error_string(Result result) {
    switch (result) {
        case Result::success: return "no error";
        case Result::remote_error: return "remote process exited or there was a network error";
        case Result::invalid_usage: return "invalid usage";
        default: return "another error";
    }
}

const char* get_last_error(Comm /*comm*/) {
    return last_error.c_str();
}

Result group_start() {
    ++depth;
    return Result::success;
}

Result group_end() {
    if (depth == 0) return misuse("a group ends that did not begin");
    if (--depth > 0) return Result::success;
    const auto calls = std::exchange(group, nullptr);
    const Result failure = std::exchange(group_failure, Result::success);
    return failure == Result::success && calls ? launch(*calls) : failure;
}

Result all_reduce(const void* from, void* to, size_t count, DataType type, RedOp op, Comm comm,
                  Stream stream) {
    const bool is_known = op == RedOp::sum || (op == RedOp::max && type == DataType::int32);
    if (!is_known || bytes_of(type) == 0) return misuse("no such type or operation");
    if (!in_place_or_apart(from, to, int64_t(count) * bytes_of(type), 1, 0))
        return misuse("all_reduce: operands overlap");
    Call call = collective(Kind::all_reduce, from, to, count, type);
    call.header.operation = op;
    return give(comm, stream, std::move(call));
}

Result reduce_scatter(const void* from, void* to, size_t received, DataType type, RedOp op, Comm comm,
                      Stream stream) {
    if (op != RedOp::sum || bytes_of(type) == 0) return misuse("no such type or operation");
    if (!in_place_or_apart(to, from, int64_t(received) * bytes_of(type), int64_t(comm->world_ranks.size()),
                           comm->rank))
        return misuse("reduce_scatter: operands overlap");
    return give(comm, stream, collective(Kind::reduce_scatter, from, to, received, type));
}

Result all_gather(const void* from, void* to, size_t sent, DataType type, Comm comm, Stream stream) {
    if (bytes_of(type) == 0) return misuse("no such type");
    if (!in_place_or_apart(from, to, int64_t(sent) * bytes_of(type), int64_t(comm->world_ranks.size()),
                           comm->rank))
        return misuse("all_gather: operands overlap");
    return give(comm, stream, collective(Kind::all_gather, from, to, sent, type));
}

Result send(const void* from, size_t count, DataType type, int peer, Comm comm, Stream stream) {
    Call call = collective(Kind::message, from, nullptr, count, type);
    call.receives = false;
    call.peer = peer;
    return give(comm, stream, std::move(call));
}

Result receive(void* to, size_t count, DataType type, int peer, Comm comm, Stream stream) {
    Call call = collective(Kind::message, nullptr, to, count, type);
    call.sends = false;
    call.peer = peer;
    return give(comm, stream, std::move(call));
}

// A launch also takes the lock of the streams.
template <auto function>
struct Locked;
template <class... Arguments, Result (*function)(Arguments...)>
struct Locked<function> {
    static Result call(Arguments... arguments) {
        const std::lock_guard lock(mutex);
        return function(arguments...);
    }
};

}  // namespace

const NcclLibrary& nccl_stand_in() {
    set_up_stand_in();
    return nccl_functions();
}

const NcclLibrary& nccl_functions() {
    static const NcclLibrary library = {.get_version = get_version,
                                        .get_unique_id = get_unique_id,
                                        .comm_init_rank = comm_init_rank,
                                        .comm_init_rank_config = comm_init_rank_config,
                                        .comm_init_rank_scalable = comm_init_rank_scalable,
                                        .comm_split = comm_split,
                                        .comm_finalize = comm_finalize,
                                        .comm_destroy = comm_destroy,
                                        .comm_abort = comm_abort,
                                        .comm_get_async_error = comm_get_async_error,
                                        .get_error_string = get_error_string,
                                        .get_last_error = get_last_error,
                                        .group_start = group_start,
                                        .group_end = Locked<group_end>::call,
                                        .all_reduce = Locked<all_reduce>::call,
                                        .reduce_scatter = Locked<reduce_scatter>::call,
                                        .all_gather = Locked<all_gather>::call,
                                        .send = Locked<send>::call,
                                        .receive = Locked<receive>::call};
    return library;
}

const NcclLibrary& nccl_stand_in_without_split() {
    static const NcclLibrary library = [] {
        NcclLibrary whole = nccl_stand_in();
        whole.comm_split = nullptr;
        whole.comm_init_rank_scalable = nullptr;
        return whole;
    }();
    return library;
}

void nccl_stand_in_mode(const NcclMode& chosen) {
    mode = chosen;
}

void nccl_hold_starts(bool held) {
    starts_are_held = held;
}

int nccl_starts_held() {
    return starts_held;
}

std::vector<int> nccl_max_ctas() {
    std::vector<int> all;
    for (const Comm comm : live) all.push_back(comm->max_ctas);
    std::ranges::sort(all);
    return all;
}

int nccl_ids_used() {
    return ids_used;
}

int nccl_splits() {
    return splits;
}

int nccl_live() {
    return int(live.size());
}

int nccl_aborted() {
    return aborted;
}

void nccl_abort_all() {
    for (const Comm comm : live) comm->aborted = true;
}

int nccl_launches() {
    return launches;
}

int nccl_messages() {
    return messages;
}

void nccl_fail_next(Result result) {
    next_failure = result;
}

void nccl_set_state(Result result) {
    state = result;
}

}  // namespace coeus::test
