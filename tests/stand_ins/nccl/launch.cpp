// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/nccl/launch.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/types.hpp"
#include "stand_ins/nccl/dead_lock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <cuda_runtime.h>
#include <random>
#include <stdexcept>
#include <utility>

namespace coeus::test::stand_in {

using namespace nccl;

namespace {

constexpr const char* name_of_kind[] = {"all_reduce", "reduce_scatter", "all_gather", "message"};

std::string text_of(const Header& h) {
    return fmt::format("{} {} of {} elements of type {}", name_of_kind[int(h.kind)], h.number, h.count,
                       int(h.type));
}

std::vector<std::shared_ptr<Launch>> under_way;  // in the order of the host's calls
const Launch* meeting = nullptr;                 // the calls for which the host waits for other ranks

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
    launch.begun = true;
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

// The same on all ranks of a call.
std::mt19937_64 order_of(const Launch& launch, const Call& call) {
    return std::mt19937_64(uint64_t(launch.comm->id) << 32 | uint64_t(call.header.number));
}

void finish(Launch& launch) {
    for (const Call& call : launch.calls) {
        if (!call.receives) continue;
        const int64_t bytes = sent_bytes(call);
        std::vector<const std::byte*> parts;
        for (const Transfer& t : call.in) parts.push_back(t.data.data());
        if (call.header.kind == Kind::all_reduce || call.header.kind == Kind::reduce_scatter) {
            if (mode.random_sums) std::ranges::shuffle(parts, order_of(launch, call));
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
    if (!dead_lock.look(again, meeting || !under_way.empty())) return;
    std::string text = meeting ? "the first call of a communicator, " + text_of(*meeting) : "";
    for (const auto& launch : under_way) {
        launch->comm->aborted = true;
        if (text.empty()) text = text_of(*launch);
    }
    under_way.clear();
    throw std::runtime_error("NCCL stand-in: the ranks wait for each other; this one for " + text);
}

int blocks_of(const Launch& launch) {
    return launch.comm->max_ctas > 0 ? launch.comm->max_ctas : NcclMode::usual_blocks;
}

bool may_begin(const Launch& launch) {
    if (launch.comm->done != launch.number) return false;
    bool is_before = true;  // submitted before it
    int blocks = blocks_of(launch);
    for (const auto& other : under_way) {
        if (other.get() == &launch) {
            is_before = false;
            continue;
        }
        if (is_before && mode.order == NcclMode::Order::serial) return false;
        if (is_before && mode.order == NcclMode::Order::overlapped && !other->begun) return false;
        if (other->begun) blocks += blocks_of(*other);
    }
    return mode.resident_blocks == 0 || blocks <= mode.resident_blocks;
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
    stage([](Launch& launch) { return may_begin(launch); }, begin);
    stage(all_arrived, exchange);
    stage(all_arrived, finish);
}

struct TemporaryStream {
    cudaStream_t stream = nullptr;
    TemporaryStream() { cudaStreamCreateWithPriority(&stream, 0, 0); }
    ~TemporaryStream() { cudaStreamDestroy(stream); }
    TemporaryStream(const TemporaryStream&) = delete;
    TemporaryStream& operator=(const TemporaryStream&) = delete;
};

// Waits on the host until the ranks of a first call have all made it; for a message, until its other end has.
// The GPU works meanwhile.
void meet(const Launch& calls) {
    const Comm comm = calls.comm;
    std::vector<MPI_Request> requests;
    const auto rank_of = [&](int peer) { return comm->world_ranks[size_t(peer)]; };
    const auto tell = [&](int peer, int tag) {
        MPI_Issend(nullptr, 0, MPI_BYTE, rank_of(peer), tag, world, &requests.emplace_back());
    };
    const auto hear = [&](int peer, int tag) {
        MPI_Irecv(nullptr, 0, MPI_BYTE, rank_of(peer), tag, world, &requests.emplace_back());
    };
    const int for_collectives = comm->id * 2048 + 1022, for_messages = comm->id * 2048 + 2046;
    for (const Call& call : calls.calls) {
        if (call.header.kind != Kind::message) {
            if (std::exchange(comm->has_met, true)) continue;
            for (int peer = 0; peer < int(comm->world_ranks.size()); ++peer) {
                tell(peer, for_collectives);
                hear(peer, for_collectives);
            }
        } else if (call.peer != comm->rank) {
            if (call.sends && comm->met_to.insert(call.peer).second) tell(call.peer, for_messages);
            if (call.receives && comm->met_from.insert(call.peer).second) hear(call.peer, for_messages);
        }
    }
    if (requests.empty()) return;
    const TemporaryStream waiting;
    emulation::give_when(
        waiting.stream,
        [&] {
            int done = 0;
            MPI_Testall(int(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
            return done != 0;
        },
        [] {});
    meeting = &calls;
    try {
        cudaStreamSynchronize(waiting.stream);
    } catch (...) {
        meeting = nullptr;
        throw;
    }
    meeting = nullptr;
}

}  // namespace

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

int64_t sent_bytes(const Call& call) {
    return call.header.count * bytes_of(call.header.type);
}

Result launch(const Launch& calls) {
    if (mode.blocking_first_calls) meet(calls);
    const std::shared_ptr<Comm> kept(new Comm(calls.comm), [](const Comm* comm) {
        --(*comm)->kept;
        delete comm;
    });
    ++calls.comm->kept;
    emulation::give_anew(calls.stream,
                         [calls, kept](coeus_emulated_stream* stream) { issue(calls, stream); });
    return Result::success;
}

void forget(Comm comm) {
    std::erase_if(under_way, [&](const auto& launch) { return launch->comm == comm; });
}

void set_up_stand_in() {
    if (world != MPI_COMM_NULL) return;
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    static DeadLock dead_lock(world);
    emulation::on_waiting([](bool again) { find_dead_lock(dead_lock, again); });
}

}  // namespace coeus::test::stand_in
