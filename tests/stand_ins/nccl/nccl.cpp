// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/nccl/nccl.hpp"

#include "coeus/base/types.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "stand_ins/nccl/dead_lock.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace coeus::nccl {

struct OpaqueComm {
    int id = 0, rank = 0;
    std::vector<int> world_ranks;       // of the communicator's ranks
    int collectives = 0;                // number given until now
    std::map<int, int> sent, received;  // numbers of messages to and from each rank, given until now
    int given = 0, done = 0;            // numbers of launches
    int kept = 0;                       // number of graphs that use it
    std::atomic<bool> aborted = false;  // if true, its remaining work does nothing
};

}  // namespace coeus::nccl

namespace coeus::test {

namespace {

using namespace nccl;

enum class Kind : int { all_reduce, reduce_scatter, all_gather, message };

constexpr const char* name_of_kind[] = {"all_reduce", "reduce_scatter", "all_gather", "message"};

// The properties on which ranks must agree; for a message, sender and receiver.
struct Header {
    Kind kind;
    int number;  // counts the communicator's collectives, or its messages between two ranks
    int64_t count;
    DataType type;
    RedOp operation = RedOp::sum;
    bool operator==(const Header&) const = default;
};

std::string text_of(const Header& h) {
    return fmt::format("{} {} of {} elements of type {}", name_of_kind[int(h.kind)], h.number, h.count,
                       int(h.type));
}

// One rank's part of a call: the data sent to a peer, or received from one.
struct Transfer {
    int peer;
    int tag;
    Header own, theirs = {};
    std::vector<std::byte> data;
};

struct Call {
    Header header;
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    int peer = -1;  // of a message
    bool sends = true, receives = true;
    std::vector<Transfer> out, in;
};

// Calls that begin together.
struct Launch {
    Comm comm = nullptr;
    coeus_emulated_stream* stream = nullptr;
    int number = 0;
    std::vector<Call> calls;
    std::vector<MPI_Request> requests;
};

MPI_Comm world = MPI_COMM_NULL;
std::recursive_mutex mutex;
std::vector<std::shared_ptr<Launch>> under_way;
std::set<Comm> live;
int made = 0, aborted = 0, launches = 0, messages = 0, splits = 0;
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

int64_t bytes_of(DataType type) {
    switch (type) {
        case DataType::uint8: return 1;
        case DataType::bfloat16: return 2;
        case DataType::int32:
        case DataType::float32: return 4;
        case DataType::int64:
        case DataType::float64: return 8;
    }
    return 0;
}

template <class T, class Accumulator>
void sum_as(std::byte* to, const std::vector<const std::byte*>& parts, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        Accumulator sum = Accumulator(reinterpret_cast<const T*>(parts[0])[i]);
        for (size_t p = 1; p < parts.size(); ++p) sum += Accumulator(reinterpret_cast<const T*>(parts[p])[i]);
        reinterpret_cast<T*>(to)[i] = T(sum);
    }
}

void largest(DataType type, std::byte* to, const std::vector<const std::byte*>& parts, int64_t count) {
    require(type == DataType::int32, "the stand-in finds the largest of integers only");
    for (int64_t i = 0; i < count; ++i) {
        int32_t most = reinterpret_cast<const int32_t*>(parts[0])[i];
        for (const std::byte* part : parts) most = std::max(most, reinterpret_cast<const int32_t*>(part)[i]);
        reinterpret_cast<int32_t*>(to)[i] = most;
    }
}

void sum(DataType type, std::byte* to, const std::vector<const std::byte*>& parts, int64_t count) {
    switch (type) {
        case DataType::float64: return sum_as<double, double>(to, parts, count);
        case DataType::float32: return sum_as<float, float>(to, parts, count);
        case DataType::bfloat16: return sum_as<bf16, float>(to, parts, count);
        case DataType::int32: return sum_as<int32_t, int32_t>(to, parts, count);
        case DataType::int64: return sum_as<int64_t, int64_t>(to, parts, count);
        case DataType::uint8: return sum_as<uint8_t, uint8_t>(to, parts, count);
    }
}

// The bytes of a rank's input that a peer needs.
int64_t sent_bytes(const Call& call) {
    return call.header.count * bytes_of(call.header.type);
}

int64_t offset_for(const Call& call, int peer) {
    return call.header.kind == Kind::reduce_scatter ? peer * sent_bytes(call) : 0;
}

int tag_of(const Launch& launch, const Call& call, bool payload) {
    const bool message = call.header.kind == Kind::message;
    return ((launch.comm->id * 2 + int(message)) * 512 + call.header.number % 511) * 2 + int(payload);
}

bool all_arrived(Launch& launch) {
    int done = 0;
    MPI_Testall(int(launch.requests.size()), launch.requests.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
}

template <class Each>
void for_each_peer(const Launch& launch, const Call& call, const Each& each) {
    if (call.header.kind == Kind::message) return each(call.peer);
    for (int peer = 0; peer < int(launch.comm->world_ranks.size()); ++peer) each(peer);
}

// Reads the data to be sent and announces the calls to the peers. A rank that gives work must be met by its
// peer before it continues.
void begin(Launch& launch) {
    for (Call& call : launch.calls) {
        const int tag = tag_of(launch, call, false);
        for_each_peer(launch, call, [&](int peer) {
            if (call.receives)
                call.in.push_back(
                    {peer, tag, call.header, {}, std::vector<std::byte>(size_t(sent_bytes(call)))});
            if (!call.sends) return;
            const std::byte* from = call.from + offset_for(call, peer);
            call.out.push_back({peer, tag, call.header, {}, {from, from + sent_bytes(call)}});
        });
    }
    const auto rank_of = [&](int peer) { return launch.comm->world_ranks[size_t(peer)]; };
    for (Call& call : launch.calls) {
        for (Transfer& t : call.in)
            MPI_Irecv(&t.theirs, sizeof(Header), MPI_BYTE, rank_of(t.peer), t.tag, world,
                      &launch.requests.emplace_back());
        for (Transfer& t : call.out)
            MPI_Issend(&t.own, sizeof(Header), MPI_BYTE, rank_of(t.peer), t.tag, world,
                       &launch.requests.emplace_back());
    }
}

void exchange(Launch& launch) {
    launch.requests.clear();
    for (const Call& call : launch.calls)
        for (const Transfer& t : call.in)
            if (!(t.own == t.theirs))
                throw std::runtime_error(fmt::format("NCCL stand-in: this rank gave {}, rank {} gave {}",
                                                     text_of(t.own), t.peer, text_of(t.theirs)));
    const auto rank_of = [&](int peer) { return launch.comm->world_ranks[size_t(peer)]; };
    for (Call& call : launch.calls) {
        for (Transfer& t : call.in)
            MPI_Irecv(t.data.data(), int(t.data.size()), MPI_BYTE, rank_of(t.peer), t.tag + 1, world,
                      &launch.requests.emplace_back());
        for (Transfer& t : call.out)
            MPI_Isend(t.data.data(), int(t.data.size()), MPI_BYTE, rank_of(t.peer), t.tag + 1, world,
                      &launch.requests.emplace_back());
    }
}

void finish(Launch& launch) {
    for (const Call& call : launch.calls) {
        if (!call.receives) continue;
        const int64_t bytes = sent_bytes(call);
        std::vector<const std::byte*> parts;
        for (const Transfer& t : call.in) parts.push_back(t.data.data());
        if (call.header.kind == Kind::all_reduce || call.header.kind == Kind::reduce_scatter) {
            const auto reduce = call.header.operation == RedOp::max ? largest : sum;
            reduce(call.header.type, call.to, parts, call.header.count);
        } else {
            for (size_t p = 0; p < parts.size(); ++p)
                std::memcpy(call.to + int64_t(p) * bytes, parts[p], size_t(bytes));
        }
    }
    ++launch.comm->done;
    std::erase_if(under_way, [&](const auto& other) { return other.get() == &launch; });
}

std::string text_of(const Launch& launch) {
    std::string text;
    for (const Call& call : launch.calls) {
        text += text.empty() ? "" : ", ";
        if (call.header.kind != Kind::message)
            text += text_of(call.header);
        else
            text += fmt::format("{} {} rank {}", call.sends ? "a send" : "a receive",
                                call.sends ? "to" : "from", call.peer);
    }
    return text;
}

// Throws in a rank that waits for a stream if the wait can never end.
void find_dead_lock(DeadLock& dead_lock, bool again) {
    if (!dead_lock.look(again, !under_way.empty())) return;
    std::string text;
    for (const auto& launch : under_way) {
        launch->comm->aborted = true;
        if (text.empty()) text = text_of(*launch);
    }
    under_way.clear();
    throw std::runtime_error("NCCL stand-in: the ranks wait for each other; this one for " + text);
}

// Each launch of a graph issues its calls again, with new numbers.
void issue(const Launch& calls, coeus_emulated_stream* stream) {
    const std::lock_guard lock(mutex);
    const auto l = std::make_shared<Launch>(calls);
    ++launches;
    under_way.push_back(l);
    l->number = l->comm->given++;
    for (Call& call : l->calls) {
        if (call.header.kind != Kind::message)
            call.header.number = l->comm->collectives++;
        else
            call.header.number = (call.sends ? l->comm->sent : l->comm->received)[call.peer]++;
    }
    const auto stage = [&](bool (*ready)(Launch&), void (*work)(Launch&)) {
        emulation::give_when(
            stream, [l, ready] { return l->comm->aborted || ready(*l); },
            [l, work] {
                if (!l->comm->aborted) work(*l);
            });
    };
    stage([](Launch& launch) { return launch.comm->done == launch.number; }, begin);
    stage(all_arrived, exchange);
    stage(all_arrived, finish);
}

Result launch(const Launch& calls) {
    const std::shared_ptr<Comm> kept(new Comm(calls.comm), [](const Comm* comm) {
        --(*comm)->kept;
        delete comm;
    });
    ++calls.comm->kept;
    emulation::give_anew(calls.stream,
                         [calls, kept](coeus_emulated_stream* stream) { issue(calls, stream); });
    return Result::success;
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
    if (!live.contains(comm)) return misuse("the communicator is not one");
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
    *version = 22809;
    return Result::success;
}

// The id contains a number and the rank where the others meet.
Result get_unique_id(UniqueId* id) {
    int rank = 0, size = 0;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    const int number[2] = {made++ * size + rank, rank};
    std::memcpy(id->internal, number, sizeof number);
    return Result::success;
}

// Every rank sends the first one its rank in the world, and receives those of all.
Result comm_init_rank(Comm* comm, int ranks, UniqueId id, int rank) {
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
    *comm = made_now.release();
    live.insert(*comm);
    return Result::success;
}

// Every rank of the parent sends every other its colour and a proposed id. The new communicator uses the id
// that its first rank proposed.
Result comm_split(Comm parent, int color, int key, Comm* part, void* config) {
    if (!live.contains(parent)) return misuse("the communicator is not one");
    if (config) return misuse("the parent's configuration is taken");
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
    for (const Place& place : together) {
        if (place.rank == own.rank) made_now->rank = int(made_now->world_ranks.size());
        made_now->world_ranks.push_back(place.rank);
    }
    *part = made_now.release();
    live.insert(*part);
    return Result::success;
}

Result comm_destroy(Comm comm) {
    if (comm->kept > 0) return misuse("a graph has operations of the communicator: this would wait for good");
    if (live.erase(comm) == 0) return misuse("the communicator is not one");
    if (comm->given != comm->done) return misuse("the communicator has work left");
    delete comm;
    return Result::success;
}

Result comm_abort(Comm comm) {
    if (comm->kept > 0) return misuse("a graph has operations of the communicator: this would wait for good");
    ++aborted;
    if (live.contains(comm)) comm->aborted = true;  // its pending work refers to it
    std::erase_if(under_way, [&](const auto& launch) { return launch->comm == comm; });
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

// One lock guards the streams' work and the calls of other threads. A launch also takes the lock of the
// streams.
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
    if (world == MPI_COMM_NULL) {
        MPI_Comm_dup(MPI_COMM_WORLD, &world);
        static DeadLock dead_lock(world);
        emulation::on_waiting([](bool again) { find_dead_lock(dead_lock, again); });
    }
    static const NcclLibrary library = {.get_version = get_version,
                                        .get_unique_id = get_unique_id,
                                        .comm_init_rank = comm_init_rank,
                                        .comm_split = comm_split,
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
        return whole;
    }();
    return library;
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
